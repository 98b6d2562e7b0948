"""A request has room before it is sent, for the most that it may take."""

from __future__ import annotations

import pytest

from kltune.rewards.judge_budget import Use, is_limited, lacking_words, most_of, spent_words
from kltune.spec.judge import BudgetSpec, JudgeSpec

SPEC = JudgeSpec(judge="m", url="http://h/v1", max_tokens=100, price_in=1.0, price_out=2.0)


def limited(**budget: float) -> JudgeSpec:
    return SPEC.model_copy(update={"budget": BudgetSpec.model_validate(budget)})


def test_no_token_is_shorter_than_a_byte() -> None:
    messages = [{"role": "system", "content": "é"}, {"role": "user", "content": "abc"}]
    assert most_of(SPEC, messages) == Use(1, 2 + 3 + 2 * 32, 100)


@pytest.mark.parametrize(
    ("budget", "used", "fits"),
    [
        ({"calls": 2}, Use(1), True),
        ({"calls": 2}, Use(2), False),
        ({"tokens": 200}, Use(1, 50, 40), True),
        ({"tokens": 200}, Use(1, 51, 40), False),
        ({"money": 1e-3}, Use(1, 0, 395), True),
        ({"money": 1e-3}, Use(1, 0, 396), False),
        ({}, Use(10**6, 10**9), True),
    ],
)
def test_one_more_fits_only_where_the_most_that_it_takes_is_left(
    budget: dict[str, float], used: Use, fits: bool
) -> None:
    spec = limited(**budget)
    assert is_limited(spec) == bool(budget)
    assert (lacking_words(spec, used, Use(1, 10, 100)) is None) == fits


def test_what_is_spent_is_named() -> None:
    assert spent_words(limited(calls=2), Use(2)) == "2 call(s)"
    assert spent_words(limited(tokens=10), Use(1, 4, 6)) == "10 tokens"
    assert spent_words(limited(money=2), Use(1, 0, 10**6)) == "2 in money"
    assert spent_words(limited(calls=2), Use(1, 10**9)) is None
