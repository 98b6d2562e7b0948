"""What may be demanded, and what holds."""

from __future__ import annotations

import pytest
from confirm_case import judged

from kltune.confirm.require import check_requirements, parse_requirement
from kltune.errors import SpecError


@pytest.mark.parametrize("text", ["gold>baseline", "Gold  >  Baseline", "winner   stays"])
def test_blanks_and_case_do_not_matter(text: str) -> None:
    assert parse_requirement(text).text in ("gold > baseline", "winner stays")


@pytest.mark.parametrize("text", ["gold < start", "proxy > start", "gold > 0.5", ""])
def test_anything_else_is_refused_and_told_what_is_allowed(text: str) -> None:
    with pytest.raises(SpecError, match="'gold > baseline', 'gold > start', 'winner stays'"):
        parse_requirement(text)


def test_gold_above_a_baseline_holds_only_where_the_interval_says_so() -> None:
    clear, close = judged([2.0, 1.9, 1.0, 0.0]), judged([1.0, 0.2, 1.0, 0.0])
    above_recipe, above_start = (
        parse_requirement("gold > baseline"),
        parse_requirement("gold > start"),
    )
    assert above_recipe.gate(clear).holds
    assert not above_recipe.gate(close).holds
    assert "can't be told" in above_recipe.gate(close).why
    slightly = judged([1.08, 0.2, 1.0, 0.0])
    assert next(a for a in slightly.against if a.arm == 2).difference > 0
    assert not above_recipe.gate(slightly).holds
    assert above_start.gate(close).holds
    assert not above_start.gate(judged([0.0, 0.0, 0.0, 0.5])).holds


def test_a_winner_that_is_tied_is_not_beaten_but_does_not_stay() -> None:
    stays, unbeaten = parse_requirement("winner stays"), parse_requirement("winner not beaten")
    tied, beaten = judged([1.0, 1.0, 0.2, 0.0]), judged([1.0, 2.0, 0.2, 0.0])
    assert not stays.gate(tied).holds
    assert unbeaten.gate(tied).holds
    assert not unbeaten.gate(beaten).holds
    assert stays.gate(judged([2.0, 1.0, 0.2, 0.0])).holds


def test_without_a_baseline_there_is_nothing_to_be_above() -> None:
    with pytest.raises(SpecError, match="nothing to compare with"):
        check_requirements((parse_requirement("gold > baseline"),), {"recommended", "candidate"})


def test_the_rival_that_comes_closest_is_named() -> None:
    one = judged([1.0, 0.2, 1.4, 0.0])
    gate = parse_requirement("gold > baseline").gate(one)
    assert "against trial 0: recipe a it is -0." in gate.why
