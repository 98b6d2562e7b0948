from __future__ import annotations

from dataclasses import replace

import pytest
import soundness_case as case

from kltune.check.scores import gold_line, proxy_line, scorer_lines
from kltune.grade import Grade


def test_a_sound_set_up_passes_without_a_remedy() -> None:
    lines = scorer_lines(case.scoring())
    assert [line.name for line in lines] == ["proxy", "gold"]
    assert {(line.grade, line.remedy) for line in lines} == {(Grade.PASS, "")}
    assert "correlation with the proxy +0.60" in lines[1].shown


@pytest.mark.parametrize(
    ("fields", "grade", "word"),
    [
        ({"fault": "scorer proxy raised KeyError: 'x'"}, Grade.FAIL, "KeyError"),
        ({"std": 0.0}, Grade.FAIL, "to all 64"),
        ({"std": None}, Grade.FAIL, "to all 64"),
        ({"unscored_frac": 0.2}, Grade.WARN, "can't score 20 %"),
        ({"unscored_frac": 0.7}, Grade.FAIL, "can't score 70 %"),
        ({"constant_group_frac": 0.75}, Grade.WARN, "75 %"),
        ({"repeats": False, "repeat_gap": 0.3}, Grade.WARN, "0.3"),
    ],
)
def test_each_fault_of_the_proxy_is_told(
    fields: dict[str, object], grade: Grade, word: str
) -> None:
    line = proxy_line(replace(case.scorer(), **fields))
    assert (line.name, line.grade, bool(line.remedy)) == ("proxy", grade, True)
    assert word in line.shown


@pytest.mark.parametrize(
    ("pair", "grade"),
    [
        ({"identical_frac": 1.0, "correlation": 1.0}, Grade.FAIL),
        ({"identical_frac": 1.0, "correlation": None}, Grade.FAIL),
        ({"correlation": 1.0}, Grade.FAIL),
        ({"correlation": -1.0}, Grade.FAIL),
        ({"correlation": -0.3}, Grade.WARN),
        ({"correlation": 0.98}, Grade.PASS),
        ({"identical_frac": 0.95}, Grade.PASS),
        ({"correlation": None}, Grade.PASS),
    ],
)
def test_gold_must_be_another_judgement_than_the_proxy(
    pair: dict[str, float | None], grade: Grade
) -> None:
    found = case.scoring()
    line = gold_line(found.golds[0], replace(found.pairs[0], **pair))
    assert (line.name, line.grade) == ("gold", grade)


@pytest.mark.parametrize(
    ("fields", "grade"),
    [
        ({"fault": "scorer gold returned no score"}, Grade.FAIL),
        ({"std": 0.0}, Grade.WARN),
        ({"unscored_frac": 0.01}, Grade.FAIL),
        ({"repeats": False, "repeat_gap": 0.3}, Grade.WARN),
    ],
)
def test_each_fault_of_gold_is_told(fields: dict[str, object], grade: Grade) -> None:
    line = gold_line(replace(case.scorer("task.gold"), **fields), None)
    assert (line.grade, bool(line.remedy)) == (grade, True)


def test_a_further_gold_has_a_line_that_names_it() -> None:
    found = case.scoring()
    more = replace(found, golds=(*found.golds, case.scorer("task.golds.retention")))
    assert [line.title.split()[0] for line in scorer_lines(more)[1:]] == ["gold", "golds.retention"]


@pytest.mark.parametrize(
    ("fields", "word"),
    [({"mean": 1e12, "largest": 1e12}, "drowns"), ({"mean": 0.0, "largest": 1e39}, "beyond")],
)
def test_a_proxy_that_single_precision_cant_hold_fails(fields: dict[str, float], word: str) -> None:
    line = proxy_line(replace(case.scorer(), **fields))
    assert line.grade is Grade.FAIL
    assert word in line.shown
    assert "subtract a constant" in line.remedy
    judged = gold_line(replace(case.scorer("task.gold"), **fields), None)
    assert judged.grade is Grade.PASS, "gold is averaged in double precision"


@pytest.mark.parametrize(
    ("gap", "grade"), [(0.0, Grade.PASS), (1e-4, Grade.PASS), (0.1, Grade.WARN)]
)
def test_scores_that_hang_on_the_list_are_told_apart_from_noise(gap: float, grade: Grade) -> None:
    found = replace(case.scorer(), order_gap=gap)
    for line in (proxy_line(found), gold_line(found, None)):
        assert line.grade is grade
        assert ("no noise" in line.shown) == (grade is Grade.WARN)


def test_what_raised_is_not_answered_with_what_should_be_returned() -> None:
    raised = replace(
        case.scorer(), fault="scorer p raised KeyError: 'x' (r.py, line 3)", raised=True
    )
    line = proxy_line(raised)
    assert "r.py, line 3" in line.shown
    assert "finite number" not in line.remedy
    assert "finite number" in proxy_line(replace(raised, raised=False)).remedy


@pytest.mark.parametrize(
    ("ranks", "distinct", "grade", "word"),
    [
        (1.0, 15, Grade.FAIL, "ranks every completion as the proxy does"),
        (-1.0, 15, Grade.FAIL, "in the reverse of the proxy's order"),
        (1.0, 2, Grade.WARN, "nearly"),
        (0.99, 15, Grade.WARN, "+0.990"),
        (0.95, 15, Grade.PASS, ""),
        (None, 0, Grade.PASS, ""),
    ],
)
def test_gold_in_the_proxys_order_is_not_held_out(
    ranks: float | None, distinct: int, grade: Grade, word: str
) -> None:
    found = case.scoring()
    pair = replace(found.pairs[0], rank_correlation=ranks, distinct=distinct)
    line = gold_line(found.golds[0], pair)
    assert line.grade is grade
    assert word in line.shown
