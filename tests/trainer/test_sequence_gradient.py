"""The whole expected gradient of a two-token model: every pair of completions enumerated in float64.

Vocabulary 3. Groups of two are drawn with the product of their probabilities; the rewards go
through ``advantages`` and ``slot_loss`` as in a step, and the sum is compared with autograd of
the written-out objective.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from kltune.spec.algorithm import Algorithm, Credit
from kltune.spec.penalty import Penalty
from kltune.trainer import kl
from kltune.trainer.advantage import AdvantageRule, advantages
from kltune.trainer.kl import TokenKL
from kltune.trainer.loss import LossInputs, LossRule, slot_loss

BETA = 0.7
GROUP_FACTOR: dict[Algorithm, float] = {"rloo": 1.0, "dr-grpo": 0.5}
"""(G - 1) / G of centring by a mean that holds the completion itself, for G = 2."""
LOCAL = [
    Penalty.K2_LOSS, Penalty.WK1_LOSS, Penalty.WK3_LOSS, Penalty.K3PLUS_LOSS, Penalty.EXACT_LOSS,
    Penalty.TOPK_LOSS,
]  # fmt: skip


@dataclass(frozen=True)
class Model:
    """Logits of the first token, and of the second after each first one."""

    logits_P: Tensor
    may_end: bool
    """Whether token 0 ends a completion: then some have one token."""

    def rows(self) -> tuple[Tensor, Tensor]:
        """All completions, ``[S, 2]``, and their masks."""
        all_S2 = torch.tensor(list(itertools.product(range(3), repeat=2)))
        if self.may_end:
            all_S2 = all_S2[(all_S2[:, 0] != 0) | (all_S2[:, 1] == 0)]
        mask_S2 = torch.ones_like(all_S2).bool()
        mask_S2[:, 1] = (all_S2[:, 0] != 0) | (not self.may_end)
        return all_S2, mask_S2

    def whole(self) -> Tensor:
        """Log-probs over the vocabulary at every position of every completion, ``[S, 2, 3]``."""
        first_V = self.logits_P[:3].log_softmax(-1)
        second_VV = self.logits_P[3:].view(3, 3).log_softmax(-1)
        rows_S2, _ = self.rows()
        return torch.stack([first_V.expand(len(rows_S2), -1), second_VV[rows_S2[:, 0]]], dim=1)

    def sampled(self) -> Tensor:
        rows_S2, mask_S2 = self.rows()
        return self.whole().gather(-1, rows_S2[..., None])[..., 0].where(mask_S2, 0.0)


def pair(may_end: bool) -> tuple[Model, Model, Tensor]:
    """Policy with gradient, reference, and a reward for every completion."""
    generator = torch.Generator().manual_seed(5)
    policy, ref, reward = (
        torch.randn(size, generator=generator, dtype=torch.float64) for size in (12, 12, 9)
    )
    models = Model(policy.requires_grad_(True), may_end), Model(ref, may_end)
    return *models, reward[: len(models[0].rows()[0])]


def columns(policy: Model, ref: Model) -> TokenKL:
    now, ref_whole = policy.whole(), ref.whole()
    in_top_k = torch.zeros_like(now).bool().scatter(-1, now.topk(2).indices, True)
    top_k = (now.exp() * (now - ref_whole)).where(in_top_k, 0.0).sum(-1)
    return TokenKL(
        logprobs=policy.sampled(),
        old_logprobs=policy.sampled().detach(),
        ref_logprobs=ref.sampled(),
        exact=kl.exact(now, ref_whole),
        forward=kl.forward(now, ref_whole),
        top_k=top_k,
        in_top_k=in_top_k.gather(-1, policy.rows()[0][..., None])[..., 0],
    ).masked(policy.rows()[1])


def step_gradient(
    penalty: Penalty, rule: AdvantageRule, may_end: bool, coefficient: float = BETA
) -> Tensor:
    """Expected gradient of a step's loss over all pairs of completions."""
    policy, ref, reward_S = pair(may_end)
    inputs, mask_S2 = columns(policy, ref), policy.rows()[1]
    price = BETA if penalty.in_reward else 0.0
    cost_S2 = price * kl.reward_term(penalty, inputs) if penalty.in_reward else 0.0 * mask_S2
    first, second = torch.cartesian_prod(*[torch.arange(len(reward_S))] * 2).unbind(1)
    row_N = torch.stack([first, second], dim=1).flatten()  # groups of two, one after another
    chance_S = inputs.logprobs.detach().sum(-1).exp()
    chance_N = (chance_S[first] * chance_S[second]).repeat_interleave(2)
    paid = advantages(
        reward_S[row_N], torch.ones_like(row_N).bool(), cost_S2[row_N], mask_S2[row_N], rule
    )
    picked = TokenKL(*(getattr(inputs, name)[row_N] for name in TokenKL.__dataclass_fields__))
    weight_NT = mask_S2[row_N] * chance_N[:, None] / 2  # seq-mean-token-sum of each group
    terms = slot_loss(
        LossInputs(
            picked.logprobs,
            picked.old_logprobs,
            paid.advantage_NT,
            mask_S2[row_N],
            weight_NT,
            picked,
        ),
        LossRule(penalty, coefficient if penalty.in_loss else 0.0, 0.2, 0.2),
    )
    return torch.autograd.grad(terms.loss, policy.logits_P)[0]


def true_gradients(may_end: bool) -> dict[str, Tensor]:
    """Of minus the expected reward, and of the KLs: whole sequence, token-local reverse and forward."""
    policy, ref, reward_S = pair(may_end)
    mask_S2, logp_S = policy.rows()[1], policy.sampled().sum(-1)
    now, ref_whole = policy.whole(), ref.whole()
    chance_S = logp_S.exp().detach()[:, None]  # prefixes as they are
    values = {
        "reward": -(logp_S.exp() * reward_S).sum(),
        "full": (logp_S.exp() * (logp_S - ref.sampled().sum(-1))).sum(),
        "local": (chance_S * kl.exact(now, ref_whole).where(mask_S2, 0.0)).sum(),
        "forward": (chance_S * kl.forward(now, ref_whole).where(mask_S2, 0.0)).sum(),
    }
    return {
        name: torch.autograd.grad(value, policy.logits_P, retain_graph=True)[0]
        for name, value in values.items()
    }


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("may_end", [False, True])
def test_the_local_and_the_whole_gradient_are_two_things(may_end: bool) -> None:
    true = true_gradients(may_end)
    assert float((true["full"] - true["local"]).norm() / true["full"].norm()) > 0.1


@pytest.mark.parametrize("may_end", [False, True])
@pytest.mark.parametrize("algorithm", list(GROUP_FACTOR))
@pytest.mark.parametrize("credit", ["sequence", "reward-to-go"])
def test_k1_in_the_reward_has_the_gradient_of_the_whole_sequence(
    may_end: bool, algorithm: Algorithm, credit: Credit
) -> None:
    true = true_gradients(may_end)
    got = step_gradient(Penalty.K1_REWARD, AdvantageRule(algorithm, 2, credit), may_end)
    close(got, GROUP_FACTOR[algorithm] * (true["reward"] + BETA * true["full"]))


@pytest.mark.parametrize("may_end", [False, True])
@pytest.mark.parametrize("algorithm", list(GROUP_FACTOR))
@pytest.mark.parametrize(
    ("credit", "pays_own_token"),
    [("reward-to-go", False), ("reward-to-go", True), ("sequence", True)],
)
def test_exact_full_has_it_too_with_a_loss_coefficient_scaled_as_the_advantages_are(
    may_end: bool, algorithm: Algorithm, credit: Credit, pays_own_token: bool
) -> None:
    true, factor = true_gradients(may_end), GROUP_FACTOR[algorithm]
    rule = AdvantageRule(algorithm, 2, credit, pays_own_token)
    got = step_gradient(Penalty.EXACT_FULL, rule, may_end, coefficient=factor * BETA)
    close(got, factor * (true["reward"] + BETA * true["full"]))


@pytest.mark.parametrize("algorithm", list(GROUP_FACTOR))
def test_exact_in_the_reward_alone_has_the_future_part_only(algorithm: Algorithm) -> None:
    true = true_gradients(False)
    for credit, pays in (("reward-to-go", False), ("reward-to-go", True), ("sequence", True)):
        rule = AdvantageRule(algorithm, 2, credit, pays)
        got = step_gradient(Penalty.EXACT_REWARD, rule, False)
        future = true["full"] - true["local"]
        close(got, GROUP_FACTOR[algorithm] * (true["reward"] + BETA * future))


def test_length_mean_prices_a_nat_by_the_length() -> None:
    true = true_gradients(False)
    got = step_gradient(Penalty.K1_REWARD, AdvantageRule("rloo", 2, "length-mean"), False)
    close(got, true["reward"] + BETA / 2 * true["full"])


@pytest.mark.parametrize("may_end", [False, True])
@pytest.mark.parametrize("algorithm", list(GROUP_FACTOR))
@pytest.mark.parametrize("penalty", LOCAL)
def test_these_in_the_loss_have_the_token_local_gradient(
    may_end: bool, algorithm: Algorithm, penalty: Penalty
) -> None:
    true = true_gradients(may_end)
    got = step_gradient(penalty, AdvantageRule(algorithm, 2, "sequence"), may_end)
    close(got, GROUP_FACTOR[algorithm] * true["reward"] + BETA * true["local"])


@pytest.mark.parametrize("may_end", [False, True])
@pytest.mark.parametrize(
    ("penalty", "reverse", "forward"),
    [
        (Penalty.K3_LOSS, 0, 1),
        (Penalty.FORWARD_LOSS, 0, 1),
        (Penalty.JEFFREYS_LOSS, 1, 1),
        (Penalty.K1_LOSS, 0, 0),
    ],
)
def test_these_have_a_token_local_gradient_of_another_kind(
    may_end: bool, penalty: Penalty, reverse: int, forward: int
) -> None:
    true = true_gradients(may_end)
    got = step_gradient(penalty, AdvantageRule("rloo", 2, "sequence"), may_end)
    kind = reverse * true["local"] + forward * true["forward"]
    close(got, true["reward"] + BETA * kind)
