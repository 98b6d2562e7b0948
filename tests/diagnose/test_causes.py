from __future__ import annotations

import ast
import inspect
from types import ModuleType

import pytest

from kltune.diagnose import (
    along,
    cause_list,
    control_rules,
    fall_rules,
    kl_rules,
    negative,
    reward_rules,
    seen,
    update_rules,
)
from kltune.diagnose.causes import EXPLANATIONS, explain, in_order
from kltune.diagnose.result import Cause, Sign
from kltune.grade import Grade
from kltune.symptoms.symptom import SymptomKind


def sign(name: str, grade: Grade = Grade.WARN, cause: str = "") -> Sign:
    return Sign(name, grade, 1, 2, "", {}, cause)


def test_the_told_cause_comes_first_and_the_rest_keep_their_order() -> None:
    usual = [cause.name for cause in explain(sign("kl_stalled")).causes]
    told = [cause.name for cause in explain(sign("kl_stalled", cause="zero_advantages")).causes]
    assert told == ["zero_advantages", *[name for name in usual if name != "zero_advantages"]]


def test_a_ruled_out_cause_is_gone_unless_it_was_told() -> None:
    gone = explain(sign("kl_stalled"), frozenset({"no_group_spread"}))
    assert "no_group_spread" not in [cause.name for cause in gone.causes]
    kept = explain(sign("kl_stalled", cause="no_group_spread"), frozenset({"no_group_spread"}))
    assert kept.causes[0].name == "no_group_spread"


def test_the_worst_grade_comes_first_then_what_explains_others() -> None:
    signs = [
        sign("truncation"),
        sign("kl_explosion", Grade.FAIL),
        sign("over_optimised"),
        sign("non_finite", Grade.FAIL),
    ]
    names = [one.sign.name for one in in_order([explain(one) for one in signs])]
    assert names == ["non_finite", "kl_explosion", "over_optimised", "truncation"]


@pytest.mark.parametrize(
    "module",
    [kl_rules, reward_rules, control_rules, fall_rules, negative, seen, update_rules],
)
def test_every_sign_that_a_rule_gives_is_explained(module: ModuleType) -> None:
    calls = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Sign"
    ]
    named = {c.args[0].value for c in calls if isinstance(c.args[0], ast.Constant)}
    assert named
    assert named <= set(EXPLANATIONS)


def test_every_symptom_is_explained() -> None:
    names = {along.NAMES.get(kind, kind.value) for kind in SymptomKind}
    assert names <= set(EXPLANATIONS)


def test_every_cause_that_a_rule_tells_is_among_the_known() -> None:
    known = {cause.name for one in EXPLANATIONS.values() for cause in one.causes}
    assert set(along.CAUSES.values()) <= known
    told = {"learning_rate_too_high", "beta_too_small", "beta_zero", "update_kl_only"}
    told |= {"reward_solved", "no_group_spread"}
    assert told | {"upper_bound", "lower_bound", "normalisation"} <= known


def test_no_cause_is_listed_that_nothing_uses() -> None:
    used = {cause.name for one in EXPLANATIONS.values() for cause in one.causes}
    listed = {c.name for c in vars(cause_list).values() if isinstance(c, Cause)}
    assert listed == used
