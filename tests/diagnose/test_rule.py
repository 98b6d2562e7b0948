from __future__ import annotations

import math
from dataclasses import replace

from diagnose_case import run_log

from kltune.diagnose.rule import QUANTITY_WORDS, Rule
from kltune.symptoms.curve import Quantity


def test_every_quantity_has_words() -> None:
    assert set(QUANTITY_WORDS) == set(Quantity)


def test_one_of_a_group_is_enough() -> None:
    needs = ((Quantity.KL_TOKEN, Quantity.KL_SEQ), (Quantity.GOLD,))
    rule = Rule("", lambda _: None, needs)
    assert rule.lacks(run_log({Quantity.KL_SEQ: [1.0], Quantity.GOLD: [1.0]})) == ""
    assert rule.lacks(run_log({Quantity.KL_SEQ: [1.0]})) == "gold (a held-out judgement)"
    assert "KL to the reference" in rule.lacks(run_log({}))


def test_one_unit_alone_is_named_where_the_other_is_there() -> None:
    rule = Rule("", lambda _: None, ((Quantity.KL_SEQ,),))
    assert rule.lacks(run_log({Quantity.KL_TOKEN: [1.0]})) == "reference KL per sequence"


def test_what_else_is_lacking_is_asked_last() -> None:
    rule = Rule("", lambda _: None, ((Quantity.GOLD,),), lambda _: "a limit")
    assert rule.lacks(run_log({})) == "gold (a held-out judgement)"
    assert rule.lacks(run_log({Quantity.GOLD: [1.0]})) == "a limit"


def test_a_kl_that_is_there_and_can_not_be_used_is_named_so() -> None:
    rule = Rule("", lambda _: None, ((Quantity.KL_TOKEN,), (Quantity.GOLD,)))
    run = replace(run_log({}), unread_kl={"kl": "kl holds no number"})
    assert rule.lacks(run) == "KL to the reference that can be used, gold (a held-out judgement)"


def test_a_rule_that_needs_a_course_is_not_passed_by_a_few_steps() -> None:
    rule = Rule("", lambda _: None, ((Quantity.GOLD,),), least=3)
    assert "there is 1" in rule.lacks_to_pass(run_log({Quantity.GOLD: [1.0]}))
    assert rule.lacks_to_pass(run_log({Quantity.GOLD: [1.0] * 3})) == ""


def test_what_is_nowhere_finite_is_lacking() -> None:
    rule = Rule("", lambda _: None, ((Quantity.GOLD,),))
    assert rule.lacks(run_log({Quantity.GOLD: [math.inf] * 3})) != ""
