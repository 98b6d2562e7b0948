"""Scored completions in, the mean gradient of every penalty over them out: one backward pass each, one graph.

All gradients are of nats (or advantage units) per completion: sums over its tokens, mean over
completions, at a coefficient of 1. Paid in the reward, a penalty is measured through the policy
gradient of its cost alone, with no division by a group's standard deviation: the cost of the later
tokens, less the mean cost of the prompt's other completions, which changes no expectation.
Shapes: N completions of one policy, T tokens, P parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kltune.spec.algorithm import Credit
from kltune.spec.penalty import Penalty
from kltune.trainer.advantage import AdvantageRule, advantages
from kltune.trainer.aggregate import weighted_sum
from kltune.trainer.kl import TokenKL, clip_term, clipped_loss_term, reward_term
from kltune.trainer.stack import TrainableView

FULL: Final = "sequence-full"
"""Of the whole sequence's exact KL: its local part, and the exact KL of later positions through the reward."""

LOCAL: Final = "token-local"
"""Of the exact KL of each position, prefixes held fixed."""

POLICY: Final = "policy"
"""Of the policy loss with the spec's algorithm, without any KL."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How the penalties are taken."""

    penalties: tuple[Penalty, ...]
    credit: Credit
    """Which tokens pay; length-mean is another price, the other two differ in variance only."""
    clip: float | None
    """Clip of a token's KL, as the trainer does it; the references have none."""
    group_size: int | None
    """Completions per prompt, in a row; none: they are enumerated and need no baseline."""


def reward_advantages(terms: Terms, columns: TokenKL, mask_NT: Tensor) -> dict[str, Tensor]:
    """What each token is worth where a KL is paid in the reward: ``[N, T]`` by the name of the part.

    ``columns`` are of the policy that drew the completions.
    """
    exact_NT = columns.exact.detach()
    later_NT = _worth(terms, exact_NT, mask_NT, "reward-to-go", pays_own=False)
    found = {_later(None): later_NT}
    for penalty in terms.penalties:
        if penalty.in_reward and (name := _in_reward(penalty, terms)) not in found:
            paid_NT, _ = clip_term(reward_term(penalty, columns), terms.clip)
            is_own = penalty is not Penalty.EXACT_FULL
            found[name] = _worth(terms, paid_NT, mask_NT, terms.credit, pays_own=is_own)
    return found


def penalty_losses(
    terms: Terms, columns: TokenKL, weight_NT: Tensor, worth: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The scalar losses whose gradients add up to those of the penalties, by the name of the part.

    ``columns``: some rows with their graph; ``weight_NT``: share of each row at its valid tokens;
    ``worth``: these rows of :func:`reward_advantages`, and of the policy's own advantages.
    """
    mask_NT = weight_NT != 0
    columns = columns.masked(mask_NT)
    ratio_NT = (columns.logprobs - columns.old_logprobs).exp()
    losses = {name: -weighted_sum(ratio_NT * a_NT, weight_NT) for name, a_NT in worth.items()}
    losses[_EXACT] = weighted_sum(columns.exact, weight_NT)
    for penalty in terms.penalties:
        if penalty.in_loss and (name := _in_loss(penalty, terms)) not in losses:
            term_NT, _ = clipped_loss_term(penalty, columns, terms.clip)
            losses[name] = weighted_sum(term_NT, weight_NT)
    return losses


def recipe(terms: Terms) -> dict[str, tuple[str, ...]]:
    """Which parts' gradients add up to each label: every penalty, and the two references."""
    found: dict[str, tuple[str, ...]] = {FULL: (_EXACT, _later(None)), LOCAL: (_EXACT,)}
    for penalty in terms.penalties:
        parts: list[str] = []
        if penalty.in_loss:
            parts.append(_in_loss(penalty, terms))
        if penalty.in_reward:
            parts.append(_in_reward(penalty, terms))
        found[penalty.value] = tuple(parts)
    return found


def gradients(losses: Mapping[str, Tensor], view: TrainableView) -> dict[str, Tensor]:
    """One backward pass per loss over their common graph: ``[P]`` by name."""
    found: dict[str, Tensor] = {}
    last = len(losses) - 1
    for index, (name, loss) in enumerate(losses.items()):
        view.grad_KP.zero_()
        view.add_gradients(loss, retain_graph=index < last)
        found[name] = view.grad_KP[0].clone()
    view.grad_KP.zero_()
    return found


_EXACT: Final = "exact in the loss"


def _in_loss(penalty: Penalty, terms: Terms) -> str:
    """Without a clip the exact KL is one part, whoever needs it."""
    is_exact = penalty in (Penalty.EXACT_LOSS, Penalty.EXACT_FULL)
    return _EXACT if is_exact and terms.clip is None else f"{penalty.value} in the loss"


def _in_reward(penalty: Penalty, terms: Terms) -> str:
    is_reference = terms.clip is None and terms.credit != "length-mean"
    return _later(None if penalty is Penalty.EXACT_FULL and is_reference else penalty)


def _later(penalty: Penalty | None) -> str:
    return "exact of later tokens" if penalty is None else f"{penalty.value} in the reward"


def _worth(
    terms: Terms, cost_NT: Tensor, mask_NT: Tensor, credit: Credit, *, pays_own: bool
) -> Tensor:
    """Less cost is worth more."""
    # A completion's sum is taken as reward-to-go: costs that a token can't change only add noise.
    if credit != "length-mean":
        credit = "reward-to-go"
    if terms.group_size is not None:
        nothing_N = torch.zeros_like(cost_NT[:, 0])
        is_scored_N = torch.ones_like(nothing_N, dtype=torch.bool)
        rule = AdvantageRule("rloo", terms.group_size, credit, pays_own)
        return advantages(nothing_N, is_scored_N, cost_NT, mask_NT, rule).advantage_NT
    cost_NT = cost_NT.where(mask_NT, 0.0)
    if credit == "length-mean":
        mean_N1 = cost_NT.sum(-1, keepdim=True) / mask_NT.sum(-1, keepdim=True).clamp(min=1)
        return -mean_N1.expand_as(cost_NT)
    to_go_NT = cost_NT.flip(-1).cumsum(-1).flip(-1)
    return -(to_go_NT if pays_own else to_go_NT - cost_NT)


def every_gradient(
    parts: Mapping[str, Tensor], recipes: Mapping[str, Sequence[str]]
) -> dict[str, Tensor]:
    """Add parts up to labels."""
    return {
        label: torch.stack([parts[name] for name in names]).sum(dim=0)
        for label, names in recipes.items()
    }
