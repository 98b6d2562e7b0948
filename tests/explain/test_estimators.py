from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from kltune.explain.distribution import EXAMPLE, Pair, kl
from kltune.explain.estimators import (
    PenaltyFacts,
    alignment,
    expected_gradient,
    explain_estimators,
    true_gradient,
)
from kltune.spec.penalty import Penalty

# kl-reference.md §1.2
TOY = Pair((0.4, 0.3, 0.2, 0.1), (0.1, 0.2, 0.3, 0.4))
TRUE = (0.3719, -0.0153, -0.1724, -0.1843)
GRADIENTS: dict[Penalty, tuple[float, ...]] = {
    Penalty.K1_REWARD: TRUE,
    Penalty.EXACT_FULL: TRUE,
    Penalty.K2_LOSS: TRUE,
    Penalty.WK1_LOSS: TRUE,
    Penalty.WK3_LOSS: TRUE,
    Penalty.K3PLUS_LOSS: TRUE,
    Penalty.EXACT_LOSS: TRUE,
    Penalty.TOPK_LOSS: TRUE,
    Penalty.K1_LOSS: (0, 0, 0, 0),
    Penalty.EXACT_REWARD: (0, 0, 0, 0),
    Penalty.K3_LOSS: (0.3, 0.1, -0.1, -0.3),
    Penalty.FORWARD_LOSS: (0.3, 0.1, -0.1, -0.3),
    Penalty.JEFFREYS_LOSS: (0.6719, 0.0847, -0.2724, -0.4843),
    Penalty.ABS_LOSS: (0.24, 0.18, -0.28, -0.14),
    Penalty.K3_REWARD: (0.0719, -0.1153, -0.0724, 0.1157),
    Penalty.K2_REWARD: (0.1757, -0.1318, -0.0879, 0.0439),
    Penalty.ABS_REWARD: (0.1962, -0.1471, -0.0981, 0.0490),
}


def by_penalty(pair: Pair) -> dict[Penalty, PenaltyFacts]:
    return {row.penalty: row for row in explain_estimators(pair).penalties}


def test_estimators_of_the_toy_are_those_of_the_reference() -> None:
    facts = explain_estimators(TOY)
    rows = {row.name: row for row in facts.estimators}
    assert facts.kl == pytest.approx(0.456435, abs=1e-6)
    assert facts.kl_other_way == pytest.approx(0.456435, abs=1e-6)
    assert rows["k2"].mean == pytest.approx(0.521554, abs=1e-6)
    assert rows["abs"].mean == pytest.approx(0.895880, abs=1e-6)
    assert [rows[name].sd for name in ("k1", "k2", "k3")] == pytest.approx(
        [0.9137, 0.4394, 0.4662], abs=5e-5
    )
    assert [rows[name].bias for name in ("k1", "k3", "exact")] == [0, 0, 0]
    assert rows["k2"].bias == pytest.approx(0.521554 - 0.456435, abs=2e-6)
    assert (rows["exact"].sd, rows["exact"].answers_needed) == (0, 1)
    assert rows["k1"].answers_needed == math.ceil((0.9137 / 0.0456435) ** 2)


@pytest.mark.parametrize("penalty", list(Penalty))
def test_gradients_of_the_toy_are_those_of_the_reference(penalty: Penalty) -> None:
    assert expected_gradient(TOY, penalty) == pytest.approx(GRADIENTS[penalty], abs=6e-5)


@pytest.mark.parametrize(
    ("penalty", "cosine", "ratio"),
    [
        (Penalty.K1_REWARD, 1, 1),
        (Penalty.K3_LOSS, 0.908, 0.99),
        (Penalty.ABS_LOSS, 0.824, 0.96),
        (Penalty.K3_REWARD, 0.227, 0.43),
        (Penalty.K2_REWARD, 0.688, 0.54),
        (Penalty.ABS_REWARD, 0.688, 0.60),
    ],
)
def test_cosine_and_length_of_the_toy(penalty: Penalty, cosine: float, ratio: float) -> None:
    row = by_penalty(TOY)[penalty]
    assert row.cosine == pytest.approx(cosine, abs=6e-4)
    assert row.norm_ratio == pytest.approx(ratio, abs=6e-3)


def test_the_binary_example_of_the_reference() -> None:
    pair = Pair((0.8, 0.2), (0.5, 0.5))
    assert kl(pair.policy, pair.reference) == pytest.approx(0.1927, abs=5e-5)
    assert kl(pair.reference, pair.policy) == pytest.approx(0.2231, abs=5e-5)
    rows = by_penalty(pair)
    assert rows[Penalty.K3_REWARD].cosine == pytest.approx(-1)
    assert rows[Penalty.K3_REWARD].norm_ratio == pytest.approx(0.35, abs=6e-3)
    assert rows[Penalty.K3_REWARD].verdict == "refused: pulls AWAY from the reference"
    # d/dp = gradient with respect to the first logit / (p (1 - p)).
    slope = {p: rows[p].gradient[0] / 0.16 for p in (Penalty.EXACT_LOSS, Penalty.K3_LOSS)}
    assert slope[Penalty.EXACT_LOSS] == pytest.approx(1.386, abs=5e-4)
    assert slope[Penalty.K3_LOSS] == pytest.approx(1.875, abs=5e-4)


def softmax(logits: list[float]) -> list[float]:
    weights = [math.exp(z) for z in logits]
    return [w / math.fsum(weights) for w in weights]


def slopes(function: Callable[[list[float]], float], logits: list[float]) -> list[float]:
    """Central differences."""
    found = []
    for place in range(len(logits)):
        up, down = list(logits), list(logits)
        up[place] += 1e-5
        down[place] -= 1e-5
        found.append((function(up) - function(down)) / 2e-5)
    return found


def surrogate(penalty: Penalty, pair: Pair) -> Callable[[list[float]], float]:
    """What autograd would differentiate, enumerated: mean over answers of the old policy."""
    old, q = pair.policy, pair.reference
    place, _, where = penalty.value.partition("-")
    value = {
        "k1": lambda u: u,
        "k2": lambda u: u * u / 2,
        "k3": lambda u: math.exp(-u) - 1 + u,
        "abs": abs,
    }

    def loss(logits: list[float]) -> float:
        p = softmax(logits)
        u_now = [math.log(a / b) for a, b in zip(p, q, strict=True)]
        if where == "reward":
            u_old = [math.log(a / b) for a, b in zip(old, q, strict=True)]
            return math.fsum(a * value[place](u) for a, u in zip(p, u_old, strict=True))
        if place in ("wk1", "wk3"):
            weights = [b * (a / b) for a, b in zip(p, old, strict=True)]
            return math.fsum(w * value[place[1:]](u) for w, u in zip(weights, u_now, strict=True))
        if place in ("exact", "topk"):
            return math.fsum(a * u for a, u in zip(p, u_now, strict=True))
        if place == "forward":
            return -math.fsum(b * u for b, u in zip(q, u_now, strict=True))
        if place == "jeffreys":
            return math.fsum((a - b) * u for a, b, u in zip(p, q, u_now, strict=True))
        return math.fsum(a * value[place](u) for a, u in zip(old, u_now, strict=True))

    return loss


NOT_ENUMERATED = {Penalty.EXACT_FULL, Penalty.EXACT_REWARD, Penalty.K3PLUS_LOSS, Penalty.ABS_LOSS}
"""Sums of others, by construction, or with a kink where an answer has not moved."""


@pytest.mark.parametrize("penalty", sorted(set(Penalty) - NOT_ENUMERATED))
def test_gradients_are_the_slopes_of_what_a_trainer_minimises(penalty: Penalty) -> None:
    logits = [math.log(p) for p in EXAMPLE.policy]
    assert expected_gradient(EXAMPLE, penalty) == pytest.approx(
        slopes(surrogate(penalty, EXAMPLE), logits), abs=1e-8
    )


def test_the_true_gradient_is_the_slope_of_the_kl() -> None:
    logits = [math.log(p) for p in TOY.policy]
    found = slopes(lambda z: kl(softmax(z), TOY.reference), logits)
    assert true_gradient(TOY) == pytest.approx(found, abs=1e-8)


def test_verdicts_follow_from_the_numbers() -> None:
    rows = by_penalty(EXAMPLE)
    right = {p for p, row in rows.items() if row.verdict.startswith("right: ")}
    assert right == {p for p in Penalty if GRADIENTS[p] == TRUE}
    refused = {p for p, row in rows.items() if row.verdict.startswith("refused: ")}
    assert refused == {p for p in Penalty if p.nature.refusal is not None}
    assert rows[Penalty.K1_LOSS].verdict == "refused: no pull at all, only noise"
    assert rows[Penalty.EXACT_REWARD].verdict == "refused: no pull on its own token"
    assert rows[Penalty.K3_LOSS].verdict == "another pull: forward KL, token-local"


def test_equal_distributions_have_nothing_to_compare() -> None:
    for row in explain_estimators(Pair((0.5, 0.5), (0.5, 0.5))).penalties:
        assert (row.cosine, row.norm_ratio) == (None, None)
        assert row.verdict == "nothing to compare: the gradient of the KL is 0"


def test_an_infinite_kl_has_no_gradients() -> None:
    facts = explain_estimators(Pair((0.5, 0.5), (1.0, 0.0)))
    assert (facts.kl, facts.true_gradient, facts.penalties) == (math.inf, None, ())
    assert {row.answers_needed for row in facts.estimators} == {None}


def test_k3_is_biased_where_the_policy_lost_an_answer() -> None:
    rows = {row.name: row for row in explain_estimators(Pair((1.0, 0.0), (0.5, 0.5))).estimators}
    assert rows["k3"].bias == pytest.approx(-0.5)


def test_alignment_of_opposite_vectors() -> None:
    assert alignment((-2.0, 0.0), (1.0, 0.0)) == (-1.0, 2.0)


def test_what_k3_is_too_low_by_is_what_the_reference_gives_to_lost_answers() -> None:
    lost = explain_estimators(Pair((0.7, 0.3, 0.0), (0.5, 0.3, 0.2)))
    rows = {row.name: row for row in lost.estimators}
    assert lost.unseen == 0.2
    assert rows["k3"].bias == pytest.approx(-lost.unseen)
    assert rows["k1"].bias == 0
    assert explain_estimators(TOY).unseen == 0
