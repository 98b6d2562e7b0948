"""The look is in the ledger before anything is shown; gates decide the exit code."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from confirm_case import study
from confirm_runs_case import DESIGN, PROMPTS, KeepingBank, train

from kltune.confirm.design import Design
from kltune.confirm.looks import FILE, read_looks
from kltune.confirm.require import parse_requirement
from kltune.confirm.result import ConfirmResult
from kltune.errors import ExitCode, RunError
from kltune.launch.confirm import ConfirmRequest, Plan
from kltune.launch.confirm_record import find_runs
from kltune.launch.confirm_show import Shown
from kltune.report.rows import read_study
from kltune.spec.load import LoadedSpec
from kltune.spec.trial import TrialSpec
from kltune.tasks.protocol import Scorer
from kltune.tasks.scorers import function_scorer


def gold_of(spec: TrialSpec, step: int) -> float:
    """The recommended setting is the better one by far; seeds move both."""
    return (2.0 if spec.beta > 0 else 1.0) * (step > 0) + 0.01 * (spec.seed % 3)


def shown(
    folder: Path,
    require: tuple[str, ...] = (),
    second: Scorer | None = None,
    design: Design = DESIGN,
    **request: object,
) -> Shown:
    path = folder / "s"
    if not path.exists():
        study(path)
    rows = read_study(path)
    train(path / "confirm", design, KeepingBank(num_slots=2, prompts=4, gold_of=gold_of))
    found = find_runs(path / "confirm", design)
    plan = Plan(
        ConfirmRequest(path, require=require, **request),  # type: ignore[arg-type]
        rows,
        LoadedSpec(rows.spec, "", path / "spec.yaml"),
        DESIGN.arms,
        design.seeds,
        tuple(parse_requirement(text) for text in require),
    )
    return Shown(plan, design, found.judged, {}, PROMPTS, len(PROMPTS), second)


class Watched(io.StringIO):
    """Remembers how many looks were in the ledger when the first number came."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.looks = path, -1

    def write(self, text: str) -> int:
        if self.looks < 0:
            self.looks = len(read_looks(self.path))
        return super().write(text)


def test_the_look_is_noted_before_a_number_is_shown(tmp_path: Path) -> None:
    one = shown(tmp_path)
    stream = Watched(tmp_path / "s")
    assert one.conclude(stream, 9, 0.0) is ExitCode.DONE
    assert stream.looks == 1
    (row,) = read_looks(tmp_path / "s")
    assert row["completions"] == row["new_completions"] == 9 * 8
    assert row["seeds"] == [11, 12, 13]
    assert (tmp_path / "s" / "confirm" / "confirm.png").is_file()
    assert "looked at once so far" in stream.getvalue()
    again = Watched(tmp_path / "s")
    one.conclude(again, 0, 0.0)
    assert "looked at 2 times so far" in again.getvalue()
    assert (tmp_path / "s" / FILE).read_text().count("\n") == 2
    assert "note:" not in again.getvalue(), "the same design again is nothing new"


def test_a_look_after_others_says_that_looking_until_it_stays_is_no_test(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown(tmp_path).conclude(io.StringIO(), 9, 0.0)
    assert "wrote " in capfd.readouterr().err
    more = replace(DESIGN, seeds=(11, 12, 13, 14))
    stream = io.StringIO()
    shown(tmp_path, design=more).conclude(stream, 3, 0.0)
    text = " ".join(stream.getvalue().split())
    assert "note: the test prompts had been looked at once before with another design" in text
    assert "the 95 % intervals hold for one look" in text
    assert "until it says 'stays' makes them too narrow" in text
    facts = json.loads((tmp_path / "s" / "confirm" / "confirm.json").read_text())
    assert "hold for one look" in facts["notes"][0]
    assert "replaced " in capfd.readouterr().err


def test_json_is_the_result_and_on_disk_the_same(tmp_path: Path) -> None:
    stream = io.StringIO()
    shown(tmp_path, as_json=True).conclude(stream, 9, 0.0)
    facts = json.loads(stream.getvalue(), parse_constant=pytest.fail)
    assert json.loads((tmp_path / "s" / "confirm" / "confirm.json").read_text()) == facts
    result = ConfirmResult.from_json(facts)
    assert result.main.verdict == "stays"
    assert [arm.stop for arm in result.arms] == [8, 4, 0]
    assert result.looks == 1


@pytest.mark.parametrize(
    ("require", "code"),
    [(("gold > baseline", "winner stays"), ExitCode.DONE), ((), ExitCode.DONE)],
)
def test_gates_that_hold(tmp_path: Path, require: tuple[str, ...], code: ExitCode) -> None:
    assert shown(tmp_path, require).conclude(io.StringIO(), 9, 0.0) is code


def test_a_gate_that_does_not_hold_is_exit_4_and_the_result_is_written(tmp_path: Path) -> None:
    one = shown(tmp_path, ("winner stays",))
    arms = (
        replace(DESIGN.arms[1], role="recommended"),
        replace(DESIGN.arms[0], role="baseline"),
        DESIGN.arms[2],
    )
    swapped = {(s, {0: 1, 1: 0, 2: 2}[k]): run for (s, k), run in one.judged.items()}
    turned = replace(one, design=replace(DESIGN, arms=arms), judged=swapped)
    stream = io.StringIO()
    assert turned.conclude(stream, 9, 0.0) is ExitCode.GATE_FAILED
    assert "The winner changes to" in stream.getvalue().replace("\n", " ")
    assert (tmp_path / "s" / "confirm" / "confirm.json").is_file()


def test_a_second_gold_and_the_golds_of_the_spec_are_shown_beside(tmp_path: Path) -> None:
    def length(completions: list[str]) -> list[float]:
        return [float(len(c)) for c in completions]

    stream = io.StringIO()
    one = shown(tmp_path, as_json=True, second=function_scorer("judge.py:length", length))
    one.conclude(stream, 9, 0.0)
    result = ConfirmResult.from_json(json.loads(stream.getvalue()))
    assert [j.gold for j in result.judgements] == ["gold", "short", "judge.py:length"]


def test_seeds_with_a_missing_run_are_left_out_and_said(tmp_path: Path) -> None:
    more = replace(DESIGN, seeds=(11, 12, 13, 14))
    one = shown(tmp_path, design=more)
    judged = {cell: run for cell, run in one.judged.items() if cell != (1, 0)}
    part = replace(one, judged=judged, failed={3: "scorer raised"})
    stream = io.StringIO()
    part.conclude(stream, 12, 0.0)
    text = " ".join(stream.getvalue().split())
    assert "on 3 fresh seeds" in text
    assert "1 run failed, the first (run 3) by: scorer raised" in text
    few = replace(one, judged={c: r for c, r in judged.items() if c[0] != 3})
    with pytest.raises(
        RunError, match="only 2 of 4 seeds have every setting judged, and 3 are needed"
    ):
        few.conclude(stream, 12, 0.0)
    assert len(read_looks(tmp_path / "s")) == 1
