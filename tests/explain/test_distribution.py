from __future__ import annotations

import math

import pytest

from kltune.errors import ExitCode, SpecError
from kltune.explain.distribution import (
    EXAMPLE,
    answer_name,
    contributions,
    deviation,
    kl,
    log_ratios,
    mean,
    read_pair,
)


def test_the_worked_example_has_the_kl_of_the_issue_in_both_directions() -> None:
    assert kl(EXAMPLE.policy, EXAMPLE.reference) == pytest.approx(0.0470, abs=5e-5)
    assert kl(EXAMPLE.reference, EXAMPLE.policy) == pytest.approx(0.0423, abs=5e-5)


def test_moving_away_from_the_fourth_answer_costs_0757() -> None:
    away = (0.50, 0.25, 0.15, 0.02, 0.08)
    assert kl(away, EXAMPLE.reference) == pytest.approx(0.0757, abs=5e-5)
    assert sum(log_ratios(away, EXAMPLE.reference)) == pytest.approx(-1.569, abs=5e-4)


def test_contributions_sum_to_the_kl() -> None:
    parts = contributions(EXAMPLE.policy, EXAMPLE.reference)
    assert math.fsum(parts) == pytest.approx(kl(EXAMPLE.policy, EXAMPLE.reference), abs=1e-15)


def test_an_answer_that_only_the_policy_gives_makes_kl_infinite() -> None:
    assert kl([0.5, 0.5], [1.0, 0.0]) == math.inf
    assert deviation([0.5, 0.5], log_ratios([0.5, 0.5], [1.0, 0.0])) == math.inf


def test_an_answer_that_the_policy_never_gives_counts_nothing() -> None:
    assert kl([1.0, 0.0], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert kl([1.0, 0.0], [1.0, 0.0]) == 0


def test_mean_and_deviation_are_over_the_policys_answers() -> None:
    assert mean([0.25, 0.75], [4.0, 0.0]) == 1.0
    assert deviation([0.25, 0.75], [4.0, 0.0]) == pytest.approx(math.sqrt(3))


def test_answers_are_named_by_letters_then_by_numbers() -> None:
    assert [answer_name(place) for place in (0, 25, 26)] == ["A", "Z", "#27"]


def test_no_distributions_mean_the_worked_example() -> None:
    assert read_pair(None, None) is EXAMPLE


def test_distributions_are_read_from_text() -> None:
    pair = read_pair(".8, .2", "0.5,0.5")
    assert (pair.policy, pair.reference, pair.is_example) == ((0.8, 0.2), (0.5, 0.5), False)
    assert pair.names == ("A", "B")


def test_a_sum_within_rounding_of_1_is_accepted() -> None:
    assert read_pair("0.3333333,0.3333333,0.3333333", "0.5,0.25,0.25").names == ("A", "B", "C")


@pytest.mark.parametrize(
    ("policy", "reference", "told"),
    [
        (".5,.4", ".5,.5", "--policy: the probabilities must sum to 1 within 1e-06 (got 0.9)"),
        (".5,.5", ".5,.500002", "--reference: the probabilities must sum to 1 within 1e-06"),
        (".5,x", ".5,.5", "--policy: must be numbers separated by commas, like .3,.7 (got '.5,x')"),
        ("1.5,-.5", ".5,.5", "--policy: every probability must be from 0 to 1 (got 1.5)"),
        ("nan,1", ".5,.5", "--policy: every probability must be from 0 to 1 (got nan)"),
        ("1", "1", "--policy: must have at least 2 probabilities (got 1)"),
        (
            ".5,.5",
            ".5,.2,.3",
            "--reference: must have as many probabilities as --policy, 2 (got 3)",
        ),
        (".5,.5", None, "--reference: must be given together with --policy (got none)"),
        (None, ".5,.5", "--policy: must be given together with --reference (got none)"),
    ],
)
def test_what_is_no_pair_of_distributions_is_refused_in_one_sentence(
    policy: str | None, reference: str | None, told: str
) -> None:
    with pytest.raises(SpecError) as caught:
        read_pair(policy, reference)
    assert str(caught.value).startswith(told)
    assert caught.value.exit_code == ExitCode.USAGE
