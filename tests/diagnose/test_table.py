from __future__ import annotations

import io
from dataclasses import replace

import pytest
from diagnose_case import ramp, run_log, trl_log
from rich.console import Console, RenderableType

from kltune.diagnose.compare import compare
from kltune.diagnose.findings import diagnose
from kltune.diagnose.table import comparison_table, diagnosis_table, runs_table
from kltune.metrics.jsonl import encode
from kltune.symptoms.curve import Quantity


def printed(what: RenderableType, width: int) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(what)
    return text.getvalue()


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", [80, 120])
def test_a_diagnosis_shows_all_that_a_person_needs(width: int) -> None:
    shown = printed(diagnosis_table(diagnose(trl_log("learning_rate_x100"))), width)
    assert max(map(len, shown.splitlines())) <= width
    text = flat(shown)
    for wanted in (
        "kl_explosion (learning_rate_too_high)",
        "by the numbers",
        "do first",
        "nats/token",
        "Can't be told from this log",
        "How the log was read",
    ):
        assert wanted in text, wanted
    assert text.index("kl_explosion") < text.index("Many completions are cut")


def test_what_is_not_certain_says_so() -> None:
    text = flat(printed(diagnosis_table(diagnose(trl_log("healthy"))), 160))
    assert "not certain: a reward function with gold in its name" in text


def test_what_is_left_open_is_a_note() -> None:
    values = {Quantity.PROXY: ramp(0, 2, noise=0.1), Quantity.KL_TOKEN: ramp(0.001, 0.2)}
    text = flat(printed(diagnosis_table(diagnose(run_log(values))), 120))
    assert "note Progress can't be told from over-optimisation" in text


def test_what_lacks_one_thing_is_one_line() -> None:
    text = flat(printed(diagnosis_table(diagnose(trl_log("beta_zero"))), 200))
    assert text.count("no KL to the reference: whether") == 1


@pytest.mark.parametrize("width", [80, 120])
def test_many_runs_are_a_line_each_the_worst_first(width: int) -> None:
    names = ("healthy", "beta_zero", "beta_huge")
    shown = printed(runs_table([diagnose(trl_log(name)) for name in names]), width)
    starts = [
        line.split()[:2] for line in shown.splitlines() if line[:4] in ("fail", "warn", "pass")
    ]
    assert starts == [
        ["fail", "beta_huge.json"],
        ["warn", "beta_zero.json"],
        ["pass", "healthy.json"],
    ]
    assert max(map(len, shown.splitlines())) <= width


def test_a_name_from_a_log_is_no_markup_and_does_nothing_to_the_terminal() -> None:
    name = "[/nope] \x1b[31mred\nnext"
    values = {Quantity.PROXY: ramp(0, 2, noise=0.1), Quantity.KL_TOKEN: ramp(0.001, 0.2)}
    run = replace(run_log(values, path=name, facts={name: "1"}), notes=(name,), restart=name)
    run = replace(
        run, readings={q: replace(one, name=name, why=name) for q, one in run.readings.items()}
    )
    found = diagnose(run)
    other = replace(run, facts={})
    for what in (
        diagnosis_table(found),
        runs_table([found, found]),
        comparison_table(compare(run, other)),
    ):
        text = printed(what, 160)
        assert "\x1b" not in text
        assert "[/nope] \\u001b[31mred" in text
    assert "\x1b" not in encode(found.as_json())


def test_a_restart_is_told_in_the_head_and_in_the_line_of_many_runs() -> None:
    text = "100 steps were logged again after a restart"
    found = diagnose(replace(trl_log("healthy"), restart=text))
    assert text in printed(diagnosis_table(found), 160).splitlines()[2]
    assert text in flat(printed(runs_table([found, found]), 160))
    assert found.as_json()["restart"] == text


@pytest.mark.parametrize("width", [80, 120])
def test_of_many_runs_each_has_one_line(width: int) -> None:
    runs = [diagnose(replace(trl_log("beta_huge"), path=f"trials/{i:05d}")) for i in range(30)]
    shown = printed(runs_table(runs), width)
    assert len(shown.splitlines()) == 31
    assert all("000" in line and "kl_stalled" in line for line in shown.splitlines()[1:])


def test_one_step_is_no_steps() -> None:
    shown = printed(diagnosis_table(diagnose(run_log({Quantity.PROXY: [1.0]}))), 120)
    assert "1 logged step (step 1)" in shown
    assert "1 steps" not in shown


@pytest.mark.parametrize("width", [80, 120])
def test_a_comparison_fits_and_says_where_first(width: int) -> None:
    shown = printed(comparison_table(compare(trl_log("healthy"), trl_log("beta_huge"))), width)
    assert max(map(len, shown.splitlines())) <= width
    assert "reference KL per sequence" in flat(shown)[:200]


def test_a_quantity_of_one_run_alone_is_not_compared() -> None:
    text = flat(printed(comparison_table(compare(trl_log("healthy"), trl_log("beta_zero"))), 120))
    assert "reference KL per token: only A has it" in text
