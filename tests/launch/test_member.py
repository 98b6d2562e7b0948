"""Which exit code a finished search has, and what a member that found nothing to do leaves."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast

import pytest

from kltune.errors import ExitCode
from kltune.launch.assemble import Inputs
from kltune.launch.member import Place, settled_code, verdict_of
from kltune.metrics.jsonl import read_json, write_json
from kltune.metrics.tracker import Tracker, resolve_tracker
from kltune.spec.load import LoadedSpec, from_resolved, with_overrides
from kltune.study.crew import join
from kltune.study.lock import enter_study
from tests.fake_study import typical_trials, write_study


@contextmanager
def _worker(
    study: Path, result: TextIO | None = None, *, is_tracked: bool = False
) -> Generator[Place]:
    flag = f"tracking.enabled={str(is_tracked).lower()}"
    spec = with_overrides(from_resolved(read_json(study / "resolved.json")), (flag,))
    loaded = LoadedSpec(spec, "", study / "spec.yaml", (flag,))
    tracker = resolve_tracker(study, None, {})
    with enter_study(study, lambda: True, lambda: False) as hold, join(study, "worker") as member:
        assert hold is not None
        yield Place(loaded, study, cast("Inputs", None), tracker, result, hold, member)


@pytest.mark.parametrize(
    ("best", "states", "code"),
    [
        ({"number": 1}, ["complete", "failed"], ExitCode.DONE),
        (None, ["complete", "pruned"], ExitCode.NO_FEASIBLE_TRIAL),
        (None, ["complete", "failed"], ExitCode.NO_FEASIBLE_TRIAL),
        (None, ["failed", "failed"], ExitCode.RUN_ERROR),
        (None, [], ExitCode.NO_FEASIBLE_TRIAL),
    ],
)
def test_exit_code_of_a_finished_search(best: object, states: list[str], code: ExitCode) -> None:
    facts = {"best": best, "trials": [{"state": state} for state in states]}
    assert verdict_of(facts) is code


def test_a_wall_budget_that_ended_early_is_no_failure() -> None:
    facts = {"best": None, "trials": [{"state": "interrupted"}]}
    assert verdict_of(facts, is_cut_short=True) is ExitCode.DONE
    failed = {"best": None, "trials": [{"state": "failed"}]}
    assert verdict_of(failed, is_cut_short=True) is ExitCode.RUN_ERROR


def test_a_member_that_finds_nothing_to_do_writes_the_report_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, result = write_study(tmp_path, typical_trials()), io.StringIO()
    with _worker(study, result) as place:
        assert settled_code(place) is ExitCode.DONE
    assert (study / "report.html").is_file()
    assert "report.html" in capsys.readouterr().err
    assert json.loads(result.getvalue())["schema"] == 1


def test_or_the_report_that_is_older_than_the_last_trial(tmp_path: Path) -> None:
    study = write_study(tmp_path, typical_trials())
    (study / "report.html").write_text("as it was while others went on")
    os.utime(study / "report.html", (1, 1))
    with _worker(study) as place:
        settled_code(place)
    assert (study / "report.html").stat().st_size > 10_000
    before = (study / "report.html").stat().st_mtime_ns
    with _worker(study) as place:
        settled_code(place)
    assert (study / "report.html").stat().st_mtime_ns == before


def test_or_the_end_of_the_mlflow_run_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, closed = write_study(tmp_path, typical_trials()), list[tuple[str, str]]()

    class Mirror:
        def __init__(self, path: Path, tracker: Tracker, name: str, *_: object, **__: object):
            self._path = path

        def start(self) -> None: ...

        def close(self, status: str, artifacts: list[Path]) -> None:
            closed.append((status, artifacts[0].name))
            write_json(self._path / "mlflow.json", {"ended": status})

    monkeypatch.setattr("kltune.launch.member.MlflowMirror", Mirror)
    monkeypatch.setattr("kltune.launch.member._datasets", lambda _: [])
    for _ in range(2):
        with _worker(study, is_tracked=True) as place:
            settled_code(place)
    assert closed == [("FINISHED", "report.html")]


def test_while_others_work_it_leaves_the_report_to_them(tmp_path: Path) -> None:
    study = write_study(tmp_path, typical_trials())
    with enter_study(study, lambda: True, lambda: False), _worker(study) as place:
        assert settled_code(place) is ExitCode.DONE
    assert not (study / "report.html").exists()
