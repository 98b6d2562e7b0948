"""What ``kltune replay`` refuses before anything heavy loads, and what it plans."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fake_study
import pytest

from kltune.errors import ExitCode, SpecError, StudyError
from kltune.launch.replay import ReplayRequest, plan_replay, run_replay
from kltune.trial.folder import TrialFolder


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trials = [fake_study.trial(0.1, steps=20), fake_study.trial(0.0, steps=10)]
    return fake_study.write_study(tmp_path_factory.mktemp("studies") / "kitchen", trials)


def test_without_flags_as_many_steps_as_were_recorded(study: Path) -> None:
    plan = plan_replay(ReplayRequest(study, 1))
    assert (plan.steps, plan.steps_recorded, plan.only_warns) == (10, 10, False)
    longer = plan_replay(ReplayRequest(study, 1, steps=200))
    assert (longer.steps, longer.steps_recorded, longer.only_warns) == (200, 10, True)
    assert longer.spec.spec.trainer.steps == 80


def test_an_unknown_trial_is_refused_with_those_that_there_are(study: Path) -> None:
    with pytest.raises(StudyError, match="has no trial 7; it has: 0, 1") as caught:
        run_replay(ReplayRequest(study, 7))
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(("name", "told"), [("gone", "no such folder"), (".", "holds no study")])
def test_what_is_no_study_is_refused(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(StudyError, match=told):
        run_replay(ReplayRequest(tmp_path / name, 0))


def test_a_trace_beyond_the_end_is_refused(study: Path) -> None:
    with pytest.raises(SpecError, match="--trace-step: 11 is beyond the 10 steps that are run"):
        plan_replay(ReplayRequest(study, 1, trace=11))
    assert plan_replay(ReplayRequest(study, 1, steps=11, trace=11)).steps == 11


def test_a_trial_without_a_step_needs_a_number_of_steps(study: Path, tmp_path: Path) -> None:
    other = fake_study.write_study(tmp_path / "s", [fake_study.trial(0.1, steps=20)])
    record = plan_replay(ReplayRequest(study, 0)).record
    folder = TrialFolder(other, 5, 1)
    spec = plan_replay(ReplayRequest(other, 0)).spec.spec
    folder.write_config(record.setting, "tpe", 0.5, spec.kl_unit, spec.beta_unit)
    with pytest.raises(StudyError, match="no recorded step to repeat; --steps"):
        plan_replay(ReplayRequest(other, 5))
    assert plan_replay(ReplayRequest(other, 5, steps=3)).steps == 3


def test_results_never_land_among_the_trials_of_the_study(study: Path, tmp_path: Path) -> None:
    for inside in (study, study / "trials" / "00009"):
        with pytest.raises(SpecError, match="lies in the study"):
            plan_replay(ReplayRequest(study, 1, out=inside))
    plan_replay(ReplayRequest(study, 1, out=study / "replays" / "mine"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    with pytest.raises(SpecError, match="is not empty"):
        plan_replay(ReplayRequest(study, 1, out=tmp_path / "full"))
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match="can't be written to"):
        plan_replay(ReplayRequest(study, 1, out=tmp_path / "file" / "below"))


def test_planning_loads_no_torch_and_makes_nothing(study: Path) -> None:
    before = sorted(study.rglob("*"))
    code = (
        "import sys; from pathlib import Path; from kltune.launch.replay import ReplayRequest, plan_replay; "
        f"plan_replay(ReplayRequest(Path({str(study)!r}), 1)); "
        "print([m for m in ('torch', 'transformers', 'mlflow', 'optuna') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert sorted(study.rglob("*")) == before
