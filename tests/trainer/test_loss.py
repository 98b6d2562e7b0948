"""The loss of one slot, by hand and against autograd of the written-out formula, in float64."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kltune.spec.trial import Penalty
from kltune.trainer.loss import LossInputs, LossRule, LossTerms, slot_loss

CLIP = 0.2


def rule(penalty: Penalty | None = None, coefficient: float = 0.0, total: int = 1) -> LossRule:
    return LossRule(penalty, coefficient, CLIP, total)


def case(rows: int = 4, tokens: int = 5, seed: int = 0) -> LossInputs:
    """Random log-probs far enough from the old ones that both sides clip; ragged mask."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    now = (-2 + draw(rows, tokens)).requires_grad_(True)
    lengths = torch.tensor([tokens, 1, tokens - 2, tokens - 1])[:rows]
    mask = torch.arange(tokens)[None] < lengths[:, None]
    old = now.detach() + 0.3 * draw(rows, tokens)
    return LossInputs(now, old, now.detach() + 0.5 * draw(rows, tokens), draw(rows), mask)


def on_policy(advantages: list[float], lengths: list[int]) -> LossInputs:
    tokens = max(lengths)
    logprobs = torch.full((len(lengths), tokens), -1.0, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(tokens)[None] < torch.tensor(lengths)[:, None]
    advantage = torch.tensor(advantages, dtype=torch.float64)
    return LossInputs(logprobs, logprobs.detach(), logprobs.detach().clone(), advantage, mask)


def written_out(
    inputs: LossInputs, logprobs: Tensor, penalty: Penalty | None, coefficient: float
) -> Tensor:
    """Token by token, with Python's own min and comparisons."""
    total = torch.zeros((), dtype=torch.float64)
    for n, t in inputs.mask_NT.nonzero().tolist():
        advantage = inputs.advantage_N[n]
        ratio = torch.exp(logprobs[n, t] - inputs.old_logprobs_NT[n, t])
        value = float(ratio.detach())
        clipped = ratio
        if not 1 - CLIP <= value <= 1 + CLIP:
            clipped = torch.tensor(1 - CLIP if value < 1 else 1 + CLIP, dtype=torch.float64)
        gain = min(ratio * advantage, clipped * advantage, key=lambda g: float(g.detach()))
        u = logprobs[n, t] - inputs.ref_logprobs_NT[n, t]
        kl = {
            None: 0 * u,
            Penalty.K1_REWARD: 0 * u,
            Penalty.K2_LOSS: u**2 / 2,
            Penalty.K3_LOSS: torch.exp(-u) - 1 + u,
        }
        total = total + (-gain + coefficient * kl[penalty])
    return total / int(inputs.mask_NT.sum())


def gradient(loss: Tensor, logprobs: Tensor) -> Tensor:
    return torch.autograd.grad(loss, logprobs)[0]


@pytest.mark.parametrize("penalty", [None, *Penalty])
def test_value_and_gradient_equal_the_formula_written_out(penalty: Penalty | None) -> None:
    inputs = case()
    total = int(inputs.mask_NT.sum())
    terms = slot_loss(inputs, rule(penalty, 0.0 if penalty is None else 0.3, total))
    expected = written_out(inputs, inputs.logprobs_NT, penalty, 0.3)
    assert float(terms.loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    torch.testing.assert_close(
        gradient(terms.loss, inputs.logprobs_NT),
        gradient(expected, inputs.logprobs_NT),
        rtol=1e-12,
        atol=1e-14,
    )
    assert terms.clipped_tokens > 0, "the case must reach the clip"
    assert terms.policy + terms.kl == pytest.approx(float(terms.loss.detach()), rel=1e-12)


def test_the_reduction_is_the_token_mean() -> None:
    # policy loss of a token on policy is -advantage: rows [1,1,1,1] and [5]
    terms = slot_loss(on_policy([-1.0, -5.0], [4, 1]), rule(total=5))
    assert float(terms.loss.detach()) == pytest.approx(1.8, rel=1e-12)


def test_policy_loss_and_kl_are_reduced_alike() -> None:
    inputs = on_policy([0.0, 0.0], [4, 1])
    shifted = replace(
        inputs, ref_logprobs_NT=inputs.logprobs_NT.detach() - torch.tensor([[2**0.5], [10**0.5]])
    )
    terms = slot_loss(shifted, rule(Penalty.K2_LOSS, 1.0, 5))  # k2 of the tokens: [1,1,1,1] and [5]
    assert terms.kl == pytest.approx(1.8, rel=1e-6)


def test_masked_tokens_leave_numerator_and_denominator_alike() -> None:
    inputs = on_policy([-1.0] * 6, [5] * 6)
    mask = inputs.mask_NT.clone()
    mask[5] = False
    masked = slot_loss(replace(inputs, mask_NT=mask), rule(total=int(mask.sum())))
    assert float(masked.loss.detach()) == pytest.approx(1.0, rel=1e-12)


def test_a_centred_step_has_the_value_of_its_kl_and_a_gradient() -> None:
    # k3 = 0.05 at every token: u = log-ratio solving exp(-u) - 1 + u = 0.05
    u = 0.3
    for _ in range(50):
        u -= (math.exp(-u) - 1 + u - 0.05) / (1 - math.exp(-u))
    inputs = on_policy([1.0, -1.0], [4, 4])
    inputs = replace(inputs, ref_logprobs_NT=inputs.logprobs_NT.detach() - u)
    terms = slot_loss(inputs, rule(Penalty.K3_LOSS, 0.04, 8))
    assert float(terms.loss.detach()) == pytest.approx(0.0020, rel=1e-9)
    assert float(gradient(terms.loss, inputs.logprobs_NT).norm()) > 0
    without = slot_loss(inputs, rule(total=8))
    assert float(without.loss.detach()) == pytest.approx(0, abs=1e-15)
    assert float(gradient(without.loss, inputs.logprobs_NT).norm()) > 0


def test_groups_of_equal_rewards_still_pay_for_kl() -> None:
    inputs = on_policy([0.0] * 4, [3] * 4)
    u = 0.316227766  # k2 = 0.05
    inputs = replace(inputs, ref_logprobs_NT=inputs.logprobs_NT.detach() - u)
    terms = slot_loss(inputs, rule(Penalty.K2_LOSS, 0.1, 12))
    assert float(terms.loss.detach()) == pytest.approx(0.005, rel=1e-6)
    assert terms.policy == 0


def test_the_kl_is_added_to_the_loss() -> None:
    # policy -0.2, KL 0.5, coefficient 0.1
    inputs = on_policy([0.2], [1])
    inputs = replace(inputs, ref_logprobs_NT=inputs.logprobs_NT.detach() - 1.0)
    terms = slot_loss(inputs, rule(Penalty.K2_LOSS, 0.1, 1))
    assert (terms.policy, terms.kl) == pytest.approx((-0.2, 0.05), rel=1e-12)
    assert float(terms.loss.detach()) == pytest.approx(-0.15, rel=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "is_clipped"),
    [
        (1.5, 1.0, 1.2, True),  # gain capped from above
        (0.5, 1.0, 0.5, False),
        (0.5, -1.0, -0.8, True),  # and from below
        (1.5, -1.0, -1.5, False),
        (1.1, 1.0, 1.1, False),
        (0.9, -1.0, -0.9, False),
    ],
)
def test_the_ratio_is_clipped_on_the_pessimistic_side_only(
    ratio: float, advantage: float, value: float, is_clipped: bool
) -> None:
    logprobs = torch.tensor([[math.log(ratio) - 1]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-1.0]], dtype=torch.float64)
    inputs = LossInputs(
        logprobs, old, old, torch.tensor([advantage]).double(), torch.ones(1, 1).bool()
    )
    terms = slot_loss(inputs, rule())
    assert float(terms.loss.detach()) == pytest.approx(-value, rel=1e-12)
    assert terms.clipped_tokens == int(is_clipped)
    assert float(gradient(terms.loss, logprobs)) == (
        0.0 if is_clipped else pytest.approx(-ratio * advantage, rel=1e-12)
    )


@pytest.mark.parametrize("penalty", list(Penalty))
def test_micro_batches_add_up_to_the_whole_batch(penalty: Penalty) -> None:
    inputs = case()
    one = rule(penalty, 0.3, int(inputs.mask_NT.sum()))
    whole = slot_loss(inputs, one)

    def cut(piece: slice) -> LossTerms:
        parts = {name: getattr(inputs, name)[piece] for name in LossInputs.__dataclass_fields__}
        return slot_loss(LossInputs(**parts), one)

    parts = [cut(slice(0, 1)), cut(slice(1, 3)), cut(slice(3, 4))]
    assert sum(float(p.loss.detach()) for p in parts) == pytest.approx(
        float(whole.loss.detach()), rel=1e-12
    )
    assert sum(p.kl for p in parts) == pytest.approx(whole.kl, rel=1e-12)
    assert sum(p.clipped_tokens for p in parts) == whole.clipped_tokens
    summed = gradient(torch.stack([p.loss for p in parts]).sum(), inputs.logprobs_NT)
    torch.testing.assert_close(
        summed, gradient(whole.loss, inputs.logprobs_NT), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e10])
@pytest.mark.parametrize("penalty", [None, *Penalty])
def test_what_is_masked_reaches_neither_loss_nor_gradient(
    bad: float, penalty: Penalty | None
) -> None:
    inputs = case()
    one = rule(penalty, 0.0 if penalty is None else 0.3, int(inputs.mask_NT.sum()))
    clean = slot_loss(inputs, one)
    for field in ("logprobs_NT", "old_logprobs_NT", "ref_logprobs_NT"):
        poisoned = getattr(inputs, field).detach().where(inputs.mask_NT, bad)
        changed = replace(inputs, **{field: poisoned})
        leaf = changed.logprobs_NT.detach().requires_grad_(True)
        terms = slot_loss(replace(changed, logprobs_NT=leaf), one)
        assert float(terms.loss.detach()) == float(clean.loss.detach()), field
        assert torch.equal(
            gradient(terms.loss, leaf), gradient(slot_loss(inputs, one).loss, inputs.logprobs_NT)
        ), field


def test_one_valid_and_one_masked_overflow_give_the_k3_of_the_valid_one() -> None:
    mask = torch.tensor([[True, False]])
    for bad in (1e10, math.nan, math.inf, -math.inf):
        reference = torch.tensor([[0.1 - 1, bad]], dtype=torch.float64)
        logprobs = torch.tensor([[-1.0, 0.0]], dtype=torch.float64)
        inputs = LossInputs(logprobs, logprobs, reference, torch.zeros(1).double(), mask)
        assert slot_loss(inputs, rule(Penalty.K3_LOSS, 1.0, 1)).kl == pytest.approx(
            0.0051709, abs=5e-8
        )


@pytest.mark.parametrize("penalty", list(Penalty))
def test_a_coefficient_of_zero_computes_no_kl(penalty: Penalty) -> None:
    inputs = case()
    bad = replace(inputs, ref_logprobs_NT=torch.full_like(inputs.ref_logprobs_NT, -math.inf))
    terms = slot_loss(bad, rule(penalty, 0.0, 10))
    assert terms.kl == 0.0
    assert math.isfinite(float(terms.loss.detach()))
