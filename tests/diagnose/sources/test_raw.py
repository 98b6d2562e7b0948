from __future__ import annotations

import math

import pytest

from kltune.diagnose.sources.raw import Merger, flat, number, numbers, step_name, step_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        (" 1e-4 ", 1e-4),
        (3, 3.0),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        (True, 1.0),
    ],
)
def test_numbers_are_read_as_logs_write_them(text: object, value: float) -> None:
    assert number(text) == value


def test_not_a_number_is_a_value_that_was_logged() -> None:
    for text in ("nan", "NaN", math.nan):
        assert math.isnan(number(text) or 0)


@pytest.mark.parametrize("text", ["", "0,5", "abc", None, [1], "1_000"])
def test_anything_else_is_no_number(text: object) -> None:
    assert number(text) is None


def test_an_integer_too_large_for_a_float_is_infinite() -> None:
    assert number(10**400) == math.inf


@pytest.mark.parametrize(("value", "step"), [(3, 3), ("3", 3), (3.0, 3), (0, 0)])
def test_a_step_is_a_whole_number(value: object, step: int) -> None:
    assert step_number(value) == step


@pytest.mark.parametrize("value", [-1, 1.5, "nan", "inf", None, "x"])
def test_anything_else_is_no_step(value: object) -> None:
    assert step_number(value) is None


def test_the_surest_name_of_the_step_wins() -> None:
    assert step_name(["train/global_step", "_step", "kl"]) == "_step"
    assert step_name(["Step", "kl"]) == "Step"
    assert step_name(["kl", "epoch"]) is None


def test_the_later_value_of_a_name_at_a_step_wins() -> None:
    merger = Merger()
    merger.add(1, {"kl": 0.1, "loss": 1.0})
    merger.add(1, {"kl": 0.2})
    assert merger.rows() == ((1, {"kl": 0.2, "loss": 1.0}),)
    assert "1 step was logged more than once" in merger.notes()[0]


def test_a_resumed_run_is_put_in_order_and_said() -> None:
    merger = Merger()
    for step, kl in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.9), (3, 0.8)):
        merger.add(step, {"kl": kl})
    assert [row["kl"] for _, row in merger.rows()] == [0.1, 0.9, 0.8]
    assert "the steps go back from 3 to 2" in merger.notes()[0]


def test_one_step_in_two_parts_is_no_repetition() -> None:
    merger = Merger()
    merger.add(1, {"kl": 0.1})
    merger.add(1, {"eval/gold": 0.5})
    assert merger.notes() == ()


def test_nested_names_are_joined() -> None:
    assert flat({"a": {"b": 1, "c": {"d": 2}}, "e": 3}) == {"a/b": 1, "a/c/d": 2, "e": 3}


def test_what_kltune_wrote_as_null_is_a_number_that_is_none() -> None:
    row = numbers({"kl": None, "loss": 1.0, "text": "x", "other": None, "non_finite": ["kl"]})
    assert math.isnan(row.pop("kl"))
    assert row == {"loss": 1.0}


def test_steps_that_a_restart_logged_again_are_counted() -> None:
    merger = Merger()
    for step in (*range(1, 11), *range(6, 13)):
        merger.add(step, {"kl": 0.1})
    assert merger.restart.startswith(
        "5 steps were logged again after a restart (from 10 back to 6)"
    )
    assert merger.run("x", "test").restart == merger.restart


def test_a_step_that_is_logged_twice_is_no_restart() -> None:
    merger = Merger()
    for step in (1, 1, 2):
        merger.add(step, {"kl": 0.1})
    assert merger.restart == ""


def test_a_long_text_is_shown_in_part() -> None:
    merger = Merger()
    merger.text("kl", "row 1", "x" * 500)
    assert len(merger.texts["kl"]) < 60
