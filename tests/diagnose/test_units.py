from __future__ import annotations

import math

import pytest

from kltune.diagnose.runlog import Reading
from kltune.diagnose.units import infer, other_unit, told
from kltune.spec.trial import KLUnit
from kltune.symptoms.curve import Quantity


@pytest.mark.parametrize(
    ("peak", "tokens", "unit"),
    [
        (0.05, 400.0, KLUnit.TOKEN),
        (0.5, 100.0, KLUnit.TOKEN),
        (6.0, 400.0, KLUnit.SEQUENCE),
        (50.0, None, KLUnit.SEQUENCE),  # no mean over tokens can be 50
        (50.0, 12.0, KLUnit.SEQUENCE),
        (0.7, 400.0, None),  # between the two
        (0.05, 12.0, None),  # short completions: both are plausible
        (0.05, None, None),
        (6.0, None, None),
        (6.0, 12.0, None),
    ],
)
def test_a_unit_is_inferred_only_where_the_size_tells(
    peak: float, tokens: float | None, unit: KLUnit | None
) -> None:
    decision = infer([0.0, peak / 2, peak], tokens)
    assert decision.unit is unit
    assert not decision.is_certain
    assert f"{peak:.3g}" in decision.why


def test_infinities_say_nothing_of_the_unit() -> None:
    assert infer([math.inf, math.nan], 400.0).unit is None
    assert infer([math.inf, 0.05], 400.0).unit is KLUnit.TOKEN


def test_a_contradiction_of_the_definition_is_told() -> None:
    reading = Reading(Quantity.KL_TOKEN, "kl", "nats/token", "k3", "TRL's definition")
    changed, said = told(reading, KLUnit.SEQUENCE)
    assert (changed.quantity, changed.unit) == (Quantity.KL_SEQ, "nats/sequence")
    assert "TRL's definition" in said
    assert told(reading, KLUnit.TOKEN)[1] == ""


def test_both_units_are_filled_step_by_step() -> None:
    # Field case E2: .05 nats/token at 40 tokens are 2 nats/sequence; 6 nats/sequence are .15 per token.
    reading = Reading(Quantity.KL_TOKEN, "kl", "nats/token", "k3")
    found = other_unit(reading, {1: 0.05, 2: 0.05, 3: 0.05}, {1: 40.0, 2: 80.0}, None, "len")
    assert found is not None
    other, values = found
    assert values == {1: 2.0, 2: 4.0}
    assert (other.quantity, other.unit, other.why) == (
        Quantity.KL_SEQ,
        "nats/sequence",
        "kl x len",
    )
    back = other_unit(Reading(Quantity.KL_SEQ, "kl", ""), {1: 6.0}, {1: 40.0}, None, "len")
    assert back is not None
    assert back[1] == {1: pytest.approx(0.15)}
    assert back[0].quantity is Quantity.KL_TOKEN


def test_a_given_length_stands_in_only_where_none_was_logged() -> None:
    reading = Reading(Quantity.K1_TOKEN, "k1", "nats/token")
    found = other_unit(reading, {1: 0.1, 2: 0.1}, {1: 40.0}, 10.0, "len")
    assert found is not None
    assert found[1] == {1: 4.0, 2: 1.0}
    assert "10 tokens where none was logged" in found[0].why


def test_without_a_length_the_other_unit_stays_unknown() -> None:
    reading = Reading(Quantity.KL_TOKEN, "kl", "nats/token")
    assert other_unit(reading, {1: 0.1}, {}, None, "") is None
    assert other_unit(reading, {1: 0.1}, {1: 0.0}, None, "len") is None
