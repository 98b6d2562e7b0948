"""Expected-gradient ascent on a table of logits: every pair of completions as a group of two, weighted by its chance.

Float64 throughout, and through the library's own head, penalties, prices, advantages and slot
loss. Six contexts (before the first token, behind each first token) of five logits.
Shapes: C contexts, V vocabulary, S completions, N rows of all groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import tiny
import torch
from parity.two_tokens import VOCABULARY, Problem
from torch import Tensor

from kltune.metrics.record import RewardScale
from kltune.spec.algorithm import Algorithm, Credit
from kltune.spec.penalty import Penalty
from kltune.trainer.advantage import AdvantageRule, advantages
from kltune.trainer.head import Head, HeadRule, token_columns
from kltune.trainer.kl import TokenKL, reward_term
from kltune.trainer.loss import LossInputs, LossRule, slot_loss
from kltune.trainer.parts import DIFFERENTIABLE
from kltune.trainer.prices import Prices, prices

TOP_K = 2
GROUP = 2
STILL = 1e-11
"""Norm of a gradient that has vanished."""


@dataclass(frozen=True)
class Rule:
    """What is ascended."""

    penalty: Penalty
    algorithm: Algorithm = "rloo"
    credit: Credit = "sequence"
    pays_own_token: bool | None = None
    """None: as the trainer has it."""


def logits_of(joint_VV: Tensor) -> Tensor:
    """A joint distribution as a table of logits, ``[C, V]``."""
    first_V = joint_VV.sum(1)
    return torch.cat([first_V[None], joint_VV / first_V[:, None]]).log()


def joint_of(logits_CV: Tensor) -> Tensor:
    """The other way round."""
    table_CV = logits_CV.detach().softmax(-1)
    return table_CV[0][:, None] * table_CV[1:]


def columns(logits_CV: Tensor, ref_CV: Tensor, penalty: Penalty) -> TokenKL:
    """Every completion's two tokens through the head: its weight is the table, hidden states are one-hot contexts."""
    pairs_S2 = torch.cartesian_prod(torch.arange(VOCABULARY), torch.arange(VOCABULARY))
    context_S2 = torch.stack([torch.zeros(len(pairs_S2), dtype=torch.long), 1 + pairs_S2[:, 0]], 1)
    hidden_MC = torch.eye(1 + VOCABULARY, dtype=torch.float64)[context_S2.flatten()]
    gradients = DIFFERENTIABLE.get(penalty, frozenset[str]())
    found = token_columns(
        hidden_MC,
        hidden_MC,
        pairs_S2.flatten(),
        Head(logits_CV.T, None),
        Head(ref_CV.T, None),
        HeadRule(1.0, TOP_K if penalty is Penalty.TOPK_LOSS else None, gradients, None),
    )

    def spread(values_M: Tensor | None) -> Tensor | None:
        return None if values_M is None else values_M.view(-1, 2)

    return TokenKL(
        logprobs=found.policy_M.view(-1, 2),
        old_logprobs=found.policy_M.detach().view(-1, 2),
        ref_logprobs=found.reference_M.view(-1, 2),
        exact=found.exact_M.view(-1, 2),
        forward=found.forward_M.view(-1, 2),
        top_k=spread(found.top_k_M),
        in_top_k=spread(found.in_top_k_M),
    )


def price_of(given: Problem, rule: Rule) -> Prices:
    """What a nat costs under beta in reward units."""
    settings = tiny.settings(algorithm=rule.algorithm, group_size=GROUP)
    scale = RewardScale(given.sigma, given.sigma, mean=0.0, num_groups=1, mean_tokens=2.0)
    trial = tiny.trial(penalty=rule.penalty, beta=given.beta)
    return prices(replace(settings, scale=scale), trial, given.beta, 1.0)


def loss_gradient(given: Problem, rule: Rule, logits_CV: Tensor) -> Tensor:
    """Expected gradient of one step's loss."""
    logits_CV = logits_CV.detach().requires_grad_(True)
    each = columns(logits_CV, logits_of(given.ref_VV), rule.penalty)
    price = price_of(given, rule)
    cost_S2 = torch.zeros_like(each.logprobs.detach())
    if rule.penalty.in_reward:
        cost_S2 = price.reward * reward_term(rule.penalty, each)
    size = VOCABULARY**2
    first, second = torch.cartesian_prod(torch.arange(size), torch.arange(size)).unbind(1)
    row_N = torch.stack([first, second], dim=1).flatten()  # groups of two, one after another
    chance_S = each.old_logprobs.sum(-1).exp()
    chance_N = (chance_S[first] * chance_S[second]).repeat_interleave(GROUP)
    mask_NT = torch.ones(len(row_N), 2).bool()
    pays = rule.penalty is not Penalty.EXACT_FULL
    pays = pays if rule.pays_own_token is None else rule.pays_own_token
    worth = advantages(
        given.reward_VV.flatten()[row_N],
        mask_NT[:, 0],
        cost_S2[row_N],
        mask_NT,
        AdvantageRule(rule.algorithm, GROUP, rule.credit, pays),
    )
    names = [n for n in TokenKL.__dataclass_fields__ if getattr(each, n) is not None]
    rows = TokenKL(**{name: getattr(each, name)[row_N] for name in names})
    terms = slot_loss(
        LossInputs(
            logprobs_NT=rows.logprobs,
            old_logprobs_NT=rows.old_logprobs,
            advantage_NT=worth.advantage_NT,
            mask_NT=mask_NT,
            weight_NT=(chance_N / GROUP)[:, None].expand(-1, 2),
            kl=rows,
        ),
        LossRule(rule.penalty, price.loss, clip_low=0.2, clip_high=0.2),
    )
    return torch.autograd.grad(terms.loss, logits_CV)[0]


def natural(logits_CV: Tensor, gradient_CV: Tensor) -> Tensor:
    """The gradient over the Fisher information of each context: the same zeros, and far fewer steps."""
    table_CV = logits_CV.softmax(-1)
    visits_C1 = torch.cat([torch.ones(1).double(), table_CV[0]])[:, None]
    return gradient_CV / (visits_C1 * table_CV)


def resting_norm(given: Problem, rule: Rule, joint_VV: Tensor) -> float:
    """Norm of the expected gradient at a policy: 0 where it would stay."""
    return float(loss_gradient(given, rule, logits_of(joint_VV)).norm())


def ascend(given: Problem, rule: Rule, steps: int = 400) -> tuple[Tensor, float]:
    """From the reference to the policy where the expected gradient vanishes; and its norm there."""
    share = {"dr-grpo": (GROUP - 1) / GROUP}.get(rule.algorithm, 1.0)
    rate = 0.5 / (given.beta * share)
    logits_CV, norm = logits_of(given.ref_VV), float("inf")
    while norm > STILL and steps:
        gradient_CV = loss_gradient(given, rule, logits_CV)
        norm = float(gradient_CV.norm())
        logits_CV = logits_CV - rate * natural(logits_CV, gradient_CV)
        steps -= 1
    return joint_of(logits_CV), norm
