from __future__ import annotations

from collections.abc import Callable

import pytest

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.symptom import Symptom, SymptomKind
from kltune.symptoms.text import entropy_collapse, length_change, repetition, truncation

Rule = Callable[[Curve], Symptom | None]


def run(quantity: Quantity, start: float, end: float, steps: int = 20) -> Curve:
    return Curve.of_rows(
        (step, {quantity: end if step > steps / 2 else start}) for step in range(1, steps + 1)
    )


CASES = [
    (entropy_collapse, Quantity.ENTROPY, 1.0, 0.1, 0.5, SymptomKind.ENTROPY_COLLAPSE),
    (repetition, Quantity.REPEATED, 0.02, 0.4, 0.08, SymptomKind.REPETITION),
    (truncation, Quantity.TRUNCATED, 0.0, 0.6, 0.3, SymptomKind.TRUNCATION),
    (length_change, Quantity.LENGTH, 20.0, 4.0, 12.0, SymptomKind.LENGTH_COLLAPSE),
    (length_change, Quantity.LENGTH, 20.0, 50.0, 30.0, SymptomKind.LENGTH_GROWTH),
]


@pytest.mark.parametrize(("rule", "quantity", "start", "bad", "fine", "kind"), CASES)
def test_each_rule_sees_its_symptom_and_lets_a_mild_change_pass(
    rule: Rule, quantity: Quantity, start: float, bad: float, fine: float, kind: SymptomKind
) -> None:
    symptom = rule(run(quantity, start, bad))
    assert symptom is not None
    assert (symptom.kind, symptom.first_step, symptom.last_step) == (kind, 16, 20)
    assert symptom.numbers[quantity.value] == pytest.approx(bad)
    assert rule(run(quantity, start, fine)) is None
    assert rule(run(quantity, start, start)) is None


@pytest.mark.parametrize(("rule", "quantity", "start", "bad", "fine", "kind"), CASES)
def test_no_rule_speaks_of_a_log_without_its_quantity_or_too_short(
    rule: Rule, quantity: Quantity, start: float, bad: float, fine: float, kind: SymptomKind
) -> None:
    assert rule(run(Quantity.PROXY, start, bad)) is None
    assert rule(run(quantity, start, bad, steps=8)) is None


def test_a_task_that_repeats_or_truncates_from_the_start_is_no_symptom() -> None:
    assert repetition(run(Quantity.REPEATED, 0.3, 0.35)) is None
    assert truncation(run(Quantity.TRUNCATED, 0.7, 0.8)) is None


def test_units_are_in_the_sentence() -> None:
    found = [
        entropy_collapse(run(Quantity.ENTROPY, 1.0, 0.1)),
        length_change(run(Quantity.LENGTH, 20.0, 50.0)),
        truncation(run(Quantity.TRUNCATED, 0.0, 0.6)),
    ]
    assert [symptom and symptom.detail for symptom in found] == [
        "entropy fell from 1 to 0.1 nats/token, 10% of its start (mean of steps 16-20)",
        "completions grew from 20 to 50 tokens, 250% of their length at the start (mean of steps 16-20)",
        "60% of the completions are cut at the length limit, 0% at the start (mean of steps 16-20)",
    ]
