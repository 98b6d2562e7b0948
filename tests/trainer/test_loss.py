"""The loss of one slot, by hand and against autograd of the written-out formula, in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor

from kltune.spec.algorithm import Aggregation
from kltune.spec.penalty import Penalty
from kltune.trainer.aggregate import token_weights
from kltune.trainer.kl import TokenKL
from kltune.trainer.loss import LossInputs, LossRule, LossTerms, slot_loss

CLIP = 0.2
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)
RULE = LossRule(None, 0.0, CLIP, CLIP)


def rule(penalty: Penalty | None = None, coefficient: float = 0.0) -> LossRule:
    return replace(RULE, penalty=penalty, coefficient=coefficient)


def inputs_of(
    now: Tensor, old: Tensor, ref: Tensor, advantage: Tensor, mask: Tensor,
    aggregation: Aggregation = "token-mean",
) -> LossInputs:  # fmt: skip
    """Whole-vocabulary columns are smooth functions of the log-probs, so that gradients are seen."""
    columns = TokenKL(now, old, ref, now.square(), now.sin(), now.cos(), ref > -2)
    weight = token_weights(mask, aggregation, mask.shape[1])
    return LossInputs(now, old, advantage, mask, weight, columns, now.exp())


def case(rows: int = 4, tokens: int = 5, seed: int = 0, **more: Aggregation) -> LossInputs:
    """Random log-probs far enough from the old ones that both sides clip; ragged mask."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    now = (-2 + draw(rows, tokens)).requires_grad_(True)
    lengths = torch.tensor([tokens, 1, tokens - 2, tokens - 1])[:rows]
    mask = torch.arange(tokens)[None] < lengths[:, None]
    old, ref = (now.detach() + scale * draw(rows, tokens) for scale in (0.3, 0.5))
    return inputs_of(now, old, ref, draw(rows, tokens), mask, **more)


def on_policy(
    advantages: list[float], lengths: list[int], u: float | Tensor = 0.0, **more: Aggregation
) -> LossInputs:
    tokens = max(lengths)
    now = torch.full((len(lengths), tokens), -1.0, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(tokens)[None] < torch.tensor(lengths)[:, None]
    advantage = torch.tensor(advantages, dtype=torch.float64)[:, None].expand(-1, tokens)
    return inputs_of(now, now.detach(), now.detach() - u, advantage, mask, **more)


def one_token(ratio: float, advantage: float) -> LossInputs:
    now = torch.tensor([[math.log(ratio) - 1]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-1.0]], dtype=torch.float64)
    mask = torch.ones(1, 1).bool()
    return inputs_of(now, old, old, torch.tensor([[advantage]]).double(), mask)


def written_out(inputs: LossInputs, penalty: Penalty | None, coefficient: float) -> Tensor:
    """Token by token, with Python's own min and comparisons; KL penalties whose value is a formula."""
    assert inputs.kl is not None
    total = torch.zeros((), dtype=torch.float64)
    for n, t in inputs.mask_NT.nonzero().tolist():
        advantage, now = inputs.advantage_NT[n, t], inputs.logprobs_NT[n, t]
        ratio = torch.exp(now - inputs.old_logprobs_NT[n, t])
        value = float(ratio.detach())
        clipped = ratio
        if not 1 - CLIP <= value <= 1 + CLIP:
            clipped = torch.tensor(1 - CLIP if value < 1 else 1 + CLIP, dtype=torch.float64)
        gain = min(ratio * advantage, clipped * advantage, key=lambda g: float(g.detach()))
        u = now - inputs.kl.ref_logprobs[n, t]
        exact, forward = inputs.kl.exact[n, t], inputs.kl.forward[n, t]
        k3 = torch.exp(-u) - 1 + u
        tail = ratio * u if float(inputs.kl.ref_logprobs[n, t]) <= -2 else 0.0
        kl = {
            Penalty.K2_LOSS: value * u**2 / 2,
            Penalty.WK1_LOSS: ratio * u,
            Penalty.WK3_LOSS: ratio * k3,
            Penalty.K3PLUS_LOSS: k3.detach() + value * (u**2 - u.detach() ** 2) / 2,
            Penalty.K3_LOSS: k3,
            Penalty.EXACT_LOSS: exact,
            Penalty.EXACT_FULL: exact,
            Penalty.FORWARD_LOSS: forward,
            Penalty.JEFFREYS_LOSS: exact + forward,
            Penalty.TOPK_LOSS: now.cos() + tail,
            Penalty.K1_LOSS: u,
            Penalty.ABS_LOSS: abs(u),
        }
        penalised = kl.get(penalty, 0 * u) if penalty else 0 * u
        total = total + inputs.weight_NT[n, t] * (-gain + coefficient * penalised)
    return total


def gradient(loss: Tensor, logprobs: Tensor) -> Tensor:
    return torch.autograd.grad(loss, logprobs, retain_graph=True)[0]


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("penalty", [None, *Penalty])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_value_and_gradient_equal_the_formula_written_out(
    penalty: Penalty | None, aggregation: Aggregation
) -> None:
    inputs = case(aggregation=aggregation)
    terms = slot_loss(inputs, rule(penalty, 0.3))
    expected = written_out(inputs, penalty, 0.3)
    assert float(terms.loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    close(gradient(terms.loss, inputs.logprobs_NT), gradient(expected, inputs.logprobs_NT))
    assert terms.clipped_tokens > 0, "the case must reach the clip"
    assert terms.policy + terms.kl == pytest.approx(float(terms.loss.detach()), rel=1e-12)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("token-mean", 1.8), ("seq-mean-token-mean", 3), ("seq-mean-token-sum", 4.5), ("constant", 1.125)],
)  # fmt: skip
def test_policy_loss_kl_and_entropy_are_aggregated_alike(
    aggregation: Aggregation, expected: float
) -> None:
    # [1, 1, 1, 1] and [5], as policy loss on policy, as k2 and as entropy
    terms = slot_loss(on_policy([-1.0, -5.0], [4, 1], aggregation=aggregation), RULE)
    assert float(terms.loss.detach()) == pytest.approx(expected, rel=1e-12)
    u = torch.tensor([[2**0.5], [10**0.5]]).double()
    inputs = on_policy([0.0, 0.0], [4, 1], u, aggregation=aggregation)
    assert slot_loss(inputs, rule(Penalty.K2_LOSS, 1.0)).kl == pytest.approx(expected, rel=1e-6)
    inputs = replace(inputs, entropy_NT=torch.tensor([[1.0], [5.0]]).double().expand(-1, 4))
    terms = slot_loss(inputs, replace(RULE, entropy_bonus=0.5))
    assert terms.entropy == pytest.approx(expected / 2, rel=1e-12)
    assert float(terms.loss.detach()) == pytest.approx(-expected / 2, rel=1e-12)


def test_a_bonus_without_an_entropy_is_refused() -> None:
    inputs = replace(on_policy([0.0], [2]), entropy_NT=None)
    assert slot_loss(inputs, RULE).entropy == 0.0
    with pytest.raises(ValueError, match="entropy of each token"):
        slot_loss(inputs, replace(RULE, entropy_bonus=0.1))


def test_a_centred_step_has_the_value_of_its_kl_and_a_gradient() -> None:
    # field cases A34 and, at the end, A40
    # k3 = 0.05 at every token: u = log-ratio solving exp(-u) - 1 + u = 0.05
    u = 0.3
    for _ in range(50):
        u -= (math.exp(-u) - 1 + u - 0.05) / (1 - math.exp(-u))
    inputs = on_policy([1.0, -1.0], [4, 4], u)
    terms = slot_loss(inputs, rule(Penalty.K3_LOSS, 0.04))
    assert float(terms.loss.detach()) == pytest.approx(0.0020, rel=1e-9)
    assert float(gradient(terms.loss, inputs.logprobs_NT).norm()) > 0
    without = slot_loss(inputs, RULE)
    assert float(without.loss.detach()) == pytest.approx(0, abs=1e-15)
    assert float(gradient(without.loss, inputs.logprobs_NT).norm()) > 0
    # groups of equal rewards still pay for KL
    terms = slot_loss(on_policy([0.0] * 4, [3] * 4, u), rule(Penalty.K3_LOSS, 0.1))
    assert float(terms.loss.detach()) == pytest.approx(0.005, rel=1e-6)
    assert terms.policy == 0


def test_the_kl_is_added_to_the_loss() -> None:
    # field case A48
    terms = slot_loss(on_policy([0.2], [1], 1.0), rule(Penalty.K2_LOSS, 0.1))
    assert (terms.policy, terms.kl) == pytest.approx((-0.2, 0.05), rel=1e-12)
    assert float(terms.loss.detach()) == pytest.approx(-0.15, rel=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope", "is_clipped"),
    [
        (1.5, 1.0, 1.4, 0.0, True),  # gain capped from above, at 1 + .4
        (1.3, 1.0, 1.3, 1.0, False),
        (0.5, 1.0, 0.5, 1.0, False),
        (0.5, -1.0, -0.9, 0.0, True),  # and from below, at 1 - .1
        (0.85, -1.0, -0.9, 0.0, True),
        (1.5, -1.0, -1.5, 1.0, False),
        (2.9, -1.0, -2.9, 1.0, False),
        (3.5, -1.0, -3.0, 0.0, True),  # and where the advantage is negative, at 3
        (3.5, 1.0, 1.4, 0.0, True),
        (0.95, -1.0, -0.95, 1.0, False),
    ],
)
def test_each_side_of_the_clip_has_its_own_bound(
    ratio: float, advantage: float, value: float, slope: float, is_clipped: bool
) -> None:
    inputs = one_token(ratio, advantage)
    terms = slot_loss(inputs, replace(RULE, clip_low=0.1, clip_high=0.4, clip_max=3.0))
    assert float(terms.loss.detach()) == pytest.approx(-value, rel=1e-12)
    assert terms.clipped_tokens == int(is_clipped)
    expected = pytest.approx(-slope * ratio * advantage, rel=1e-12)
    assert float(gradient(terms.loss, inputs.logprobs_NT)) == expected


def test_without_a_highest_ratio_a_negative_advantage_is_not_bounded() -> None:
    terms = slot_loss(one_token(50.0, -1.0), RULE)
    assert (terms.policy, terms.clipped_tokens) == (pytest.approx(50.0, rel=1e-12), 0)


def test_a_ratio_of_whole_completions_is_clipped_once_for_all_their_tokens() -> None:
    old = torch.full((3, 3), -1.0, dtype=torch.float64)
    shift = [[0.1, 0.1, 0.1], [-0.1, 0.05, 9.0], [0.05, 0.0, 0.0]]
    now = (old + torch.tensor(shift, dtype=torch.float64)).requires_grad_(True)
    mask = torch.tensor([[True] * 3, [True, True, False], [True] * 3])
    advantage = torch.tensor([[2.0], [-1.0], [4.0]]).double().expand(-1, 3)
    inputs = inputs_of(now, old, old, advantage, mask, "seq-mean-token-sum")
    terms = slot_loss(inputs, replace(RULE, importance="sequence"))
    ratios = [math.exp(0.3), math.exp(-0.05), math.exp(0.05)]
    gains = [1.2 * 2.0, -ratios[1], 4 * ratios[2]]
    assert terms.policy == pytest.approx(-sum(gains) / 3, rel=1e-12)
    assert terms.clipped_tokens == 3  # the tokens of the first completion
    expected = torch.zeros(3, 3).double()
    expected[1, :2], expected[2] = ratios[1] / 3, -4 * ratios[2] / 3
    close(gradient(terms.loss, now), expected)


def test_the_distance_from_the_behaviour_policy_is_a_sum_over_tokens() -> None:
    inputs = case()
    log_ratio = (inputs.logprobs_NT - inputs.old_logprobs_NT).detach()[inputs.mask_NT]
    expected = float((log_ratio.exp() - 1 - log_ratio).sum())
    for importance in ("token", "sequence"):
        terms = slot_loss(inputs, replace(RULE, importance=importance))
        assert terms.update_kl == pytest.approx(expected, rel=1e-12)


def test_a_clip_of_the_kl_is_counted_at_valid_tokens() -> None:
    u = torch.tensor([[0.5, -3.0, 2.0], [5.0, 9.0, 9.0]]).double()
    inputs = on_policy([0.0, 0.0], [3, 1], u)
    terms = slot_loss(inputs, replace(rule(Penalty.WK1_LOSS, 1.0), kl_clip=2.0))
    assert terms.kl == pytest.approx((0.5 - 2 + 2 + 2) / 4, rel=1e-12)
    assert terms.kl_clipped_tokens == 2
    grad = gradient(terms.loss, inputs.logprobs_NT)
    close(grad, torch.tensor([[1.5, 0.0, 3.0], [0.0, 0.0, 0.0]]).double() / 4)


@pytest.mark.parametrize("penalty", list(Penalty))
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("importance", ["token", "sequence"])
def test_micro_batches_add_up_to_the_whole_batch(
    penalty: Penalty, aggregation: Aggregation, importance: str
) -> None:
    inputs = case(aggregation=aggregation)
    one = replace(rule(penalty, 0.3), importance=importance, entropy_bonus=0.1, kl_clip=0.4)
    whole = slot_loss(inputs, one)
    columns = inputs.kl
    assert columns is not None

    def cut(piece: slice) -> LossTerms:
        names = [name for name in LossInputs.__dataclass_fields__ if name != "kl"]
        part = LossInputs(**{name: getattr(inputs, name)[piece] for name in names})
        cut_kl = TokenKL(*(getattr(columns, n)[piece] for n in TokenKL.__dataclass_fields__))
        return slot_loss(replace(part, kl=cut_kl), one)

    parts = [cut(slice(0, 1)), cut(slice(1, 3)), cut(slice(3, 4))]
    total = torch.stack([p.loss for p in parts]).sum()
    assert float(total.detach()) == pytest.approx(float(whole.loss.detach()), rel=1e-12)
    for name in ("policy", "kl", "entropy", "clipped_tokens", "kl_clipped_tokens", "update_kl"):
        summed = sum(getattr(p, name) for p in parts)
        assert summed == pytest.approx(getattr(whole, name), rel=1e-12), name
    close(gradient(total, inputs.logprobs_NT), gradient(whole.loss, inputs.logprobs_NT))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e10])
@pytest.mark.parametrize("penalty", [None, *Penalty])
@pytest.mark.parametrize("importance", ["token", "sequence"])
def test_what_is_masked_reaches_neither_loss_nor_gradient(
    bad: float, penalty: Penalty | None, importance: str
) -> None:
    one = replace(rule(penalty, 0.3), importance=importance, entropy_bonus=0.1, kl_clip=0.4)

    def loss_and_gradients(behind: float) -> list[Tensor]:
        inputs, columns = case(), case().kl
        assert columns is not None

        def leaf(values: Tensor) -> Tensor:
            return values.detach().where(inputs.mask_NT, behind).requires_grad_(True)

        names = ("logprobs", "old_logprobs", "ref_logprobs", "exact", "forward", "top_k")
        leaves = [leaf(getattr(columns, name)) for name in names]
        entropy, advantage = leaf(leaves[0].exp()), leaf(inputs.advantage_NT).detach()
        kl = TokenKL(*leaves, columns.in_top_k)
        inputs = LossInputs(
            leaves[0], leaves[1].detach(), advantage, inputs.mask_NT, inputs.weight_NT, kl, entropy
        )
        loss = slot_loss(inputs, one).loss
        grads = torch.autograd.grad(loss, [*leaves, entropy], materialize_grads=True)
        return [loss.detach(), *grads]

    for got, expected in zip(loss_and_gradients(bad), loss_and_gradients(0.0), strict=True):
        assert torch.equal(got, expected)


def test_one_valid_and_one_masked_overflow_give_the_k3_of_the_valid_one() -> None:
    # field case A7
    mask = torch.tensor([[True, False]])
    for bad in (1e10, math.nan, math.inf, -math.inf):
        reference = torch.tensor([[0.1 - 1, bad]], dtype=torch.float64)
        now = torch.tensor([[-1.0, 0.0]], dtype=torch.float64)
        inputs = inputs_of(now, now, reference, torch.zeros(1, 2).double(), mask)
        kl = slot_loss(inputs, rule(Penalty.K3_LOSS, 1.0)).kl
        assert kl == pytest.approx(0.0051709, abs=5e-8)


@pytest.mark.parametrize("penalty", list(Penalty))
def test_a_coefficient_of_zero_computes_no_kl(penalty: Penalty) -> None:
    inputs = replace(case(), kl=None)
    assert slot_loss(inputs, rule(penalty, 0.0)).kl == 0.0
    if penalty.in_loss:
        with pytest.raises(ValueError, match="stands in the loss"):
            slot_loss(inputs, rule(penalty, 0.1))
    else:
        assert slot_loss(inputs, rule(penalty, 0.1)).kl == 0.0
