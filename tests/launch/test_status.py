from __future__ import annotations

import json
from pathlib import Path

import pytest

from kltune.errors import ExitCode, KltuneError, SpecError, StudyError
from kltune.launch.status import StatusRequest, run_status
from kltune.scaffold.draft import render
from kltune.scaffold.start import Answers, start_draft
from tests.standing_case import held_by_another_process, write_study, write_trial


def as_json(target: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert run_status(StatusRequest(target, as_json=True)) == ExitCode.DONE
    return json.loads(capsys.readouterr().out)


def test_a_running_study_is_told_as_data_without_holding_up_the_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = write_study(tmp_path / "s")
    write_trial(study, 0, ending={})
    with held_by_another_process(study) as pid:
        facts = as_json(study, capsys)
        assert (facts["state"], facts["process"]) == ("running", pid)
    assert facts["trials"] == {"complete": 1}
    best = facts["best"]
    assert isinstance(best, dict)
    assert (best["trial"], best["kl_token"], best["kl_seq"]) == (0, 0.2, 2.4)


def test_a_spec_leads_to_its_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = Path("mine.yaml")
    spec.write_text(render(start_draft(Answers("mine"))), encoding="utf-8")
    facts = as_json(spec, capsys)
    assert (facts["state"], facts["next"]) == ("not started", "kltune check mine.yaml")
    assert run_status(StatusRequest(spec)) == ExitCode.DONE
    assert "there is no studies/mine yet" in capsys.readouterr().out
    write_trial(write_study(Path("studies/mine")), 0, ending={})
    assert as_json(spec, capsys)["study"] == "studies/mine"
    # The spec that lies in a study means that study, whatever its name says.
    other = write_study(Path("elsewhere"))
    assert as_json(other / "spec.yaml", capsys)["study"] == "elsewhere"


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no such study folder and no such spec"):
        run_status(StatusRequest(tmp_path / "absent"))
    with pytest.raises(StudyError, match="not a study folder"):
        run_status(StatusRequest(tmp_path))
    (tmp_path / "bad.yaml").write_text("name: [", encoding="utf-8")
    with pytest.raises(SpecError):
        run_status(StatusRequest(tmp_path / "bad.yaml"))


def test_a_study_of_a_newer_schema_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "resolved.json").write_text('{"schema": 99}', encoding="utf-8")
    with pytest.raises(KltuneError, match="99"):
        run_status(StatusRequest(tmp_path))
