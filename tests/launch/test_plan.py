from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_study import SPEC, typical_trials, write_study
from spec_files import minimal, write

from kltune.errors import ExitCode, SpecError, StudyError
from kltune.launch.plan import Known, PlanRequest, run_plan, untimed
from kltune.plan.noise import Measured
from kltune.spec.load import LoadedSpec

NOISE = Measured("a pilot", 32, 2, None, 1, 0.6, between=0.2)


def pilot(loaded: LoadedSpec) -> Known:
    return Known(NOISE, untimed(loaded.spec))


def never(loaded: LoadedSpec) -> Known:
    raise AssertionError(f"{loaded.path}: sampled where a study is at hand")


def planned(capfd: pytest.CaptureFixture[str], request: PlanRequest, how=pilot) -> dict[str, Any]:
    assert run_plan(replace(request, as_json=True), how) is ExitCode.DONE
    return json.loads(capfd.readouterr().out, parse_constant=pytest.fail)


def test_without_a_study_the_reference_is_sampled_and_nothing_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    facts = planned(capfd, PlanRequest(write(tmp_path, minimal())))
    assert facts["source"] == "a pilot"
    assert facts["price"]["words"].startswith("not timed")
    assert len({need["difference_gold"] for need in facts["needs"]}) == 4
    assert any("No two settings" in text for text in facts["unknowns"])


def test_a_study_under_its_usual_name_is_found_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "studies" / "kitchen", typical_trials())
    facts = planned(capfd, PlanRequest(write(tmp_path, SPEC), difference=0.2), never)
    assert "feasible trials of kitchen" in facts["source"]
    assert {need["difference_gold"] for need in facts["needs"]} == {0.2}
    assert {one["comparisons"] for one in facts["seen"]} == {1, 24}


def test_json_goes_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    request = PlanRequest(write(tmp_path, minimal()), out=tmp_path / "new" / "plan.json")
    assert run_plan(request, pilot) is ExitCode.DONE
    shown = capfd.readouterr()
    assert "gold or more" in shown.out
    assert "wrote" in shown.err
    assert json.loads((tmp_path / "new" / "plan.json").read_text(encoding="utf-8"))["schema"] == 1


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"difference": 0.0}, "--difference: must be above 0"),
        ({"difference": math.nan}, "--difference: must be above 0"),
        ({"power": 1.0}, "--power: must be a chance"),
        ({"power": 80.0}, "--power: must be a chance"),
        ({"out": Path()}, "--out: .* is a folder"),
    ],
)
def test_what_means_nothing_is_refused_before_anything(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        run_plan(PlanRequest(write(tmp_path, minimal()), **changes), never)


def test_a_folder_that_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="not a study folder"):
        run_plan(PlanRequest(write(tmp_path, minimal()), study_path=tmp_path), never)
