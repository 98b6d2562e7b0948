"""What scores are like."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import pytest

from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import function_scorer
from kltune.trainer.soundness.score_facts import ScoringFacts
from kltune.trainer.soundness.scorers import scoring_facts

SAMPLES = tuple(
    Sample(Prompt(f"p{i // 4}", "text"), f"answer {i}", tuple(range(2, 3 + i % 4)), True)
    for i in range(32)
)


@dataclass(frozen=True)
class By:
    rule: Callable[[int], float | None]
    name: str = "by"

    def __call__(self, samples: Sequence[Sample]) -> list[float | None]:
        return [self.rule(int(sample.text.split()[1])) for sample in samples]


def facts_of(
    proxy: Callable[[int], float | None], gold: Callable[[int], float | None] = float
) -> ScoringFacts:
    return scoring_facts(SAMPLES, 4, By(proxy, "proxy"), {"task.gold": By(gold, "gold")})


def test_spread_is_told_over_all_and_within_groups() -> None:
    facts = facts_of(lambda i: float(i % 4 + 10 * (i // 4)))
    proxy = facts.proxy
    assert (proxy.field, proxy.name, proxy.num_samples) == ("task.proxy", "proxy", 32)
    assert proxy.group_std == pytest.approx(math.sqrt(5 / 3))
    assert proxy.std is not None
    assert proxy.std > 20
    assert (proxy.constant_group_frac, proxy.distinct) == (0, 32)
    assert proxy.repeats
    assert (proxy.repeat_gap, proxy.unscored_frac, proxy.fault) == (0, 0, None)
    assert proxy.seconds_per_call is not None
    assert proxy.seconds_per_call >= 0


def test_a_constant_proxy_has_no_spread_and_no_correlation() -> None:
    facts = facts_of(lambda _: 1 / 3)
    assert facts.proxy.std == 0
    assert (facts.proxy.group_std, facts.proxy.constant_group_frac) == (0, 1)
    assert facts.proxy.distinct == 1
    (pair,) = facts.pairs
    assert (pair.correlation, pair.group_correlation) == (None, None)


def test_a_proxy_that_knows_the_prompt_alone_varies_over_all_but_in_no_group() -> None:
    facts = facts_of(lambda i: float(i // 4))
    assert facts.proxy.std is not None
    assert facts.proxy.std > 1
    assert (facts.proxy.group_std, facts.proxy.constant_group_frac) == (0, 1)
    (pair,) = facts.pairs
    assert pair.correlation is not None
    assert pair.correlation > 0.9
    assert pair.group_correlation is None


def test_rounding_of_a_mean_is_no_spread() -> None:
    scorer = By(lambda i: 0.1 * (i // 3))  # the mean of three is another number in some groups
    facts = scoring_facts(SAMPLES[:30], 3, scorer, {"task.gold": By(float)})
    assert facts.pairs[0].group_correlation is None


def test_gold_that_is_the_proxy_is_identical_everywhere() -> None:
    (pair,) = facts_of(lambda i: float(i**2), lambda i: float(i**2)).pairs
    assert (pair.proxy, pair.gold, pair.num_samples) == ("task.proxy", "task.gold", 32)
    assert pair.identical_frac == 1
    assert pair.correlation == pytest.approx(1)


def test_an_opposite_gold_has_correlation_minus_1() -> None:
    (pair,) = facts_of(lambda i: -2.0 * i).pairs
    assert (pair.correlation, pair.group_correlation) == (pytest.approx(-1), pytest.approx(-1))
    assert pair.identical_frac == pytest.approx(1 / 32), "0 is its own opposite"


def test_unscored_completions_are_counted_and_left_out() -> None:
    facts = facts_of(lambda i: None if i % 8 == 0 else float(i))
    assert facts.proxy.unscored_frac == pytest.approx(1 / 8)
    assert facts.proxy.repeats, "twice unscored is the same"
    (pair,) = facts.pairs
    assert pair.num_samples == 28


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (lambda i: math.inf if i == 9 else 1.0, "returned inf for 'answer 9'"),
        (lambda _: None, "could score none of 32 completions"),
        (lambda i: 1 / (i - 3), "raised ZeroDivisionError"),
    ],
)
def test_a_scorer_at_fault_is_told_and_the_others_are_judged(
    rule: Callable[[int], float | None], told: str
) -> None:
    facts = facts_of(rule)
    assert facts.proxy.fault is not None
    assert told in facts.proxy.fault
    assert (facts.proxy.std, facts.proxy.repeats) == (None, None)
    assert facts.pairs == ()
    assert facts.golds[0].fault is None


def test_gold_must_score_everything() -> None:
    facts = facts_of(float, lambda i: None if i == 5 else 1.0)
    assert facts.golds[0].fault is not None
    assert "no score" in facts.golds[0].fault
    assert facts.proxy.fault is None


def test_a_scorer_with_a_memory_shows() -> None:
    calls = count()
    facts = facts_of(lambda i: float(i + (next(calls) >= 32)))
    assert facts.proxy.repeats is False
    assert facts.proxy.repeat_gap == 1


def test_every_gold_is_paired_with_the_proxy() -> None:
    golds = {"task.gold": By(float), "task.golds.other": By(lambda i: float(-i))}
    facts = scoring_facts(SAMPLES, 4, By(float), golds)
    assert [pair.gold for pair in facts.pairs] == list(golds)
    assert [gold.field for gold in facts.golds] == list(golds)


@dataclass(frozen=True)
class OfList:
    """A scorer that looks at the whole list."""

    rule: Callable[[list[float]], list[float]]
    name: str = "list"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return self.rule([float(sample.text.split()[1]) for sample in samples])


@pytest.mark.parametrize(
    "rule",
    [
        lambda values: [v + 0.01 * place for place, v in enumerate(values)],
        lambda values: [v - sum(values) / len(values) for v in values],
        lambda values: [float(sorted(values).index(v)) for v in values],
    ],
    ids=["place", "mean of the list", "rank in the list"],
)
def test_scores_that_hang_on_place_or_neighbours_are_no_noise(
    rule: Callable[[list[float]], list[float]],
) -> None:
    facts = scoring_facts(SAMPLES, 4, OfList(rule), {"task.gold": By(float)}).proxy
    assert facts.repeats is True
    assert facts.order_gap is not None
    assert facts.order_gap > 0


def test_a_score_of_its_own_has_no_order_and_noise_can_t_tell() -> None:
    assert facts_of(float).proxy.order_gap == 0
    assert facts_of(lambda i: None if i % 8 == 0 else float(i)).proxy.order_gap == 0
    calls = count()
    assert facts_of(lambda i: float(i + next(calls))).proxy.order_gap is None


def test_a_curve_of_the_proxy_has_its_ranks() -> None:
    (pair,) = facts_of(lambda i: float(i // 3), lambda i: float(i // 3) ** 5).pairs
    assert pair.rank_correlation == pytest.approx(1, abs=1e-12)
    assert pair.correlation is not None
    assert pair.correlation < 0.99
    assert pair.distinct == 11
    (other,) = facts_of(lambda i: float(i // 3), lambda i: float((i * 7) % 32)).pairs
    assert other.rank_correlation is not None
    assert abs(other.rank_correlation) < 0.5


def test_an_exception_is_told_from_a_wrong_result() -> None:
    assert facts_of(lambda i: 1 / (i - 3)).proxy.raised
    assert not facts_of(lambda i: math.inf if i == 9 else 1.0).proxy.raised

    def strange(completions: list[str], **_: object) -> list[object]:
        return [object() for _ in completions]

    scorer = function_scorer("strange", strange)
    facts = scoring_facts(SAMPLES, 4, scorer, {"task.gold": By(float)})
    assert facts.proxy.fault is not None
    assert not facts.proxy.raised


def test_the_largest_score_is_by_size() -> None:
    assert facts_of(lambda i: -2.0 * i).proxy.largest == 62
