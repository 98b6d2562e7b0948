"""What ``kltune confirm`` refuses before anything loads; the heavy half is replaced here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TextIO

import pytest
from confirm_case import judged, result_of, study
from fake_study import trial, write_study

from kltune.errors import ExitCode, SpecError, StudyError
from kltune.launch.confirm import ConfirmRequest, Plan, run_confirm
from kltune.launch.signals import StopRequest
from kltune.metrics.jsonl import write_json
from kltune.report.build import build_report
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import read_study
from kltune.study.lock import lock_study


class Taken:
    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def __call__(self, plan: Plan, stop: StopRequest, result: TextIO) -> ExitCode:
        assert stop() is None
        self.plans.append(plan)
        return ExitCode.DONE


def never(plan: Plan, stop: StopRequest, result: TextIO) -> ExitCode:
    raise AssertionError


def test_a_sound_request_reaches_the_heavy_half_with_seeds_that_the_study_never_had(
    tmp_path: Path,
) -> None:
    taken = Taken()
    request = ConfirmRequest(study(tmp_path / "s"), top=2, seeds=4, require=("gold > baseline",))
    assert run_confirm(request, taken) is ExitCode.DONE
    (plan,) = taken.plans
    assert len(plan.seeds) == 4
    assert not set(plan.seeds) & {row.setting.seed for row in plan.study.trials}
    assert plan.requirements[0].text == "gold > baseline"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"seeds": 1}, "--seeds: 1"),
        ({"top": 0}, "--top: must be 1"),
        ({"require": ("gold is good",)}, "--require: can't read"),
        ({"gold": "judge"}, "--gold: must look like"),
        ({"gold": "gone.py:judge"}, "--gold: no such file"),
    ],
)
def test_bad_flags_are_refused(tmp_path: Path, fields: dict[str, object], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        run_confirm(ConfirmRequest(study(tmp_path / "s"), **fields), never)  # type: ignore[arg-type]


def test_a_folder_that_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="not a study folder"):
        run_confirm(ConfirmRequest(tmp_path), never)


def test_a_study_that_runs_is_refused(tmp_path: Path) -> None:
    path = study(tmp_path / "s")
    with lock_study(path), pytest.raises(StudyError, match="another kltune is working in"):
        run_confirm(ConfirmRequest(path), never)


def on_record(path: Path, seeds: int, number: int) -> None:
    """A confirmation of the trial with so many seeds."""
    result = result_of(judged([1.0, 0.9, 0.5, 0.0], seeds=seeds))
    arms = (replace(result.arms[0], number=number), *result.arms[1:])
    write_json(path / "confirm" / "confirm.json", replace(result, arms=arms).as_json())


def test_fewer_seeds_than_on_record_are_refused_and_more_are_not(tmp_path: Path) -> None:
    path = study(tmp_path / "s")
    answer = recommend(read_study(path))
    assert isinstance(answer, Recommendation)
    on_record(path, 10, answer.best.number)
    before = (path / "confirm" / "confirm.json").read_bytes()
    with pytest.raises(SpecError, match=r"--seeds: 5 .*10 seeds .*allowed: 10 or more"):
        run_confirm(ConfirmRequest(path, seeds=5), never)
    assert (path / "confirm" / "confirm.json").read_bytes() == before
    for seeds in (10, 12):
        assert run_confirm(ConfirmRequest(path, seeds=seeds), Taken()) is ExitCode.DONE
    on_record(path, 10, 99)  # of what was recommended once
    assert run_confirm(ConfirmRequest(path, seeds=5), Taken()) is ExitCode.DONE


def test_a_confirmation_that_can_not_be_read_does_not_stop_a_new_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = study(tmp_path / "s")
    write_json(path / "confirm" / "confirm.json", {"seeds": [1]})
    assert run_confirm(ConfirmRequest(path, seeds=5), Taken()) is ExitCode.DONE
    assert "confirm.json can't be read; the new result replaces it" in capfd.readouterr().err


def test_a_study_without_an_answer_is_refused_with_its_reason(tmp_path: Path) -> None:
    path = write_study(tmp_path / "s", [])
    with pytest.raises(StudyError, match=r"nothing to confirm\. No trial has started yet"):
        run_confirm(ConfirmRequest(path), never)


def test_without_baselines_one_setting_alone_is_refused(tmp_path: Path) -> None:
    path = write_study(tmp_path / "s", [trial(0.1, value=0.9), trial(0.2, value=0.8)])
    with pytest.raises(SpecError, match="use --top 2 or more"):
        run_confirm(ConfirmRequest(path, top=1), never)
    with pytest.raises(SpecError, match="nothing to compare with: no baseline"):
        run_confirm(ConfirmRequest(path, top=2, require=("gold > baseline",)), never)


def test_the_report_is_written_anew_and_the_next_step_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = study(tmp_path / "s")
    page = build_report(path).html
    assert "fresh seeds and 32 test prompts" not in page.read_text(encoding="utf-8")
    answer = recommend(read_study(path))
    assert isinstance(answer, Recommendation)
    number = answer.best.number

    def confirming(plan: Plan, stop: StopRequest, result: TextIO) -> ExitCode:
        on_record(path, 10, number)
        return ExitCode.GATE_FAILED

    assert run_confirm(ConfirmRequest(path, as_json=True), confirming) is ExitCode.GATE_FAILED
    said = capfd.readouterr()
    assert said.out == ""
    assert f"wrote the report anew, with the confirmation: {page}" in said.err
    assert said.err.endswith(f"Next  kltune validate {path}\n")
    assert "10 fresh seeds and 32 test prompts" in page.read_text(encoding="utf-8")
    assert "is running" not in page.read_text(encoding="utf-8")


def test_what_confirms_nothing_leaves_the_report_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = study(tmp_path / "s")
    run_confirm(ConfirmRequest(path), Taken())
    assert "report" not in capfd.readouterr().err
    assert not (path / "report.html").exists()


def test_a_report_that_can_not_be_written_does_not_cost_the_confirmation(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = study(tmp_path / "s")
    (path / "report.md").mkdir()

    def confirming(plan: Plan, stop: StopRequest, result: TextIO) -> ExitCode:
        on_record(path, 10, 4)
        return ExitCode.DONE

    assert run_confirm(ConfirmRequest(path), confirming) is ExitCode.DONE
    said = capfd.readouterr().err
    assert "note: the report does not know of this confirmation yet" in said
    assert "Next  kltune " in said
