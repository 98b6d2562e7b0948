from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kltune.diagnose.sources.study import is_study, is_trial, read_study, read_trial_folder
from kltune.errors import StudyError
from kltune.metrics.jsonl import append_rows, write_json

_SETTING = {"beta": 0.1, "penalty": "k3-loss", "learning_rate": 1e-3}


def _trial(study: Path, number: int, steps: int = 2) -> Path:
    folder = study / "trials" / f"{number:05d}"
    head: dict[str, Any] = {"trial": number, "attempt": 1}
    config = {"origin": "fixed", "setting": _SETTING, "sigma_r": 0.5, "kl_unit": "token"}
    write_json(folder / "config.json", {**head, **config, "beta_unit": "reward"})
    append_rows(
        folder / "metrics.jsonl",
        [{**head, "step": s, "time": 1.0, "kl/exact_token": s / 10} for s in range(1, steps + 1)],
    )
    append_rows(folder / "evals.jsonl", [{**head, "step": s, "eval/gold": 0.5} for s in (0, 2)])
    return folder


def _study(path: Path) -> Path:
    trainer = {"algorithm": "grpo", "group_size": 8, "steps": 2}
    write_json(path / "resolved.json", {"trainer": trainer, "objective": {"kl_limit": 0.5}})
    _trial(path, 2)
    _trial(path, 10)
    return path


def test_every_trial_of_a_study_is_a_run(tmp_path: Path) -> None:
    first, second = read_study(_study(tmp_path), None)
    assert [Path(raw.path).name for raw in (first, second)] == ["00002", "00010"]
    assert first.framework == "kltune"


def test_a_trial_is_picked_by_its_number(tmp_path: Path) -> None:
    _study(tmp_path)
    for wanted in ("10", "00010"):
        (raw,) = read_study(tmp_path, wanted)
        assert Path(raw.path).name == "00010"
    with pytest.raises(StudyError, match=r"no trial '3'; the trials are: 2, 10"):
        read_study(tmp_path, "3")


def test_steps_and_evaluations_of_a_step_are_one_row(tmp_path: Path) -> None:
    raw = read_trial_folder(_trial(tmp_path, 1))
    assert raw.rows == (
        (0, {"eval/gold": 0.5}),
        (1, {"kl/exact_token": 0.1}),
        (2, {"kl/exact_token": 0.2, "eval/gold": 0.5}),
    )


def test_the_settings_of_trial_and_study_are_facts(tmp_path: Path) -> None:
    (raw,) = read_study(_study(tmp_path), "2")
    assert raw.facts["beta"] == 0.1
    assert raw.facts["penalty"] == "k3-loss"
    assert raw.facts["group_size"] == 8
    assert raw.facts["kl_limit"] == 0.5


def test_what_ended_the_trial_is_said_verbatim(tmp_path: Path) -> None:
    folder = _trial(tmp_path, 1)
    end = {"state": "complete", "steps_run": 2, "value": 0.5, "feasible": True, "best_step": 2}
    event = {"trial": 1, "attempt": 1, "event": "ended", "reason": "kl_limit", "constraint": 0.0}
    append_rows(folder / "events.jsonl", [{**event, **end, "step": 2, "detail": "KL over 0.5"}])
    assert read_trial_folder(folder).notes == ("how the trial ended: KL over 0.5",)


def test_a_study_without_a_step_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    with pytest.raises(StudyError, match="no trial of this study"):
        read_study(tmp_path, None)


def test_folders_are_told_apart(tmp_path: Path) -> None:
    study = _study(tmp_path)
    assert is_study(study)
    assert not is_trial(study)
    assert is_trial(study / "trials/00002")
