"""What is missing is trained, no more; an interruption and a fault leave what was done, and the same call goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kltune.errors import RunError, StudyError, TrialFault
from kltune.launch import arms_runs
from kltune.launch.arms import run_experiment
from kltune.launch.arms_record import FILE, is_recorded
from kltune.launch.arms_runs import missing_runs, settings_of
from kltune.metrics.jsonl import read_json
from kltune.study.lock import lock_study
from kltune.trial.outcome import StopReason
from tests.arms_case import (
    ARMS,
    SCALE,
    Fakes,
    curves_of,
    experiment,
    fakes,
    loaded_spec,
    runs_of,
)
from tests.fake_bank import FakeBank

__all__ = ["fakes"]  # a fixture
ROOT = Path(__file__).parents[2]


def test_every_arm_runs_on_every_seed_to_its_end(
    tmp_path: Path, fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_experiment(experiment(tmp_path)) is None
    runs = runs_of(tmp_path)
    # Seed by seed.
    assert [(r.origin, r.setting.seed) for r in runs] == [
        ("arm:no KL", 3),
        ("arm:some", 3),
        ("arm:no KL", 4),
        ("arm:some", 4),
    ]
    assert all(is_recorded(r) for r in runs)
    assert [[row["step"] for row in r.evals] for r in runs] == [[0, 5, 10, 12]] * 4
    assert runs[0].sigma_r == SCALE.sigma
    said = capsys.readouterr().err
    assert "4 of 4 runs to do (2 arms x 2 seeds)" in said
    assert "4 of 4 runs; about" in said
    assert "all runs are there" in said


def test_the_same_call_loads_and_trains_nothing(
    tmp_path: Path, fakes: Fakes, capsys: pytest.CaptureFixture[str]
) -> None:
    run_experiment(experiment(tmp_path))
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.json*")}
    capsys.readouterr()
    assert run_experiment(experiment(tmp_path)) is None
    assert len(fakes.loads) == 1
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.json*")} == before
    assert "loading" not in capsys.readouterr().err


def test_further_seeds_and_arms_add_their_runs_alone(tmp_path: Path, fakes: Fakes) -> None:
    run_experiment(experiment(tmp_path))
    trained = dict(fakes.bank.steps_done)
    run_experiment(experiment(tmp_path, seeds=(9, 3)))
    more = {**ARMS, "more": {"beta": 0.5, "penalty": "k1-reward"}}
    run_experiment(experiment(tmp_path, more, seeds=(4,)))
    added = {n: s for n, s in fakes.bank.steps_done.items() if n not in trained}
    assert added == {4: 12, 5: 12, 6: 12}
    assert [(r.origin, r.setting.seed) for r in runs_of(tmp_path)[4:]] == [
        ("arm:no KL", 9),
        ("arm:some", 9),
        ("arm:more", 4),
    ]
    facts = read_json(tmp_path / "out" / FILE)
    assert facts["seeds"] == [3, 4, 9]
    assert list(facts["arms"]) == ["no KL", "some", "more"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("at", [(0, 3), (1, 5), (2, 12), (3, 1)])
def test_interrupted_in_the_middle_it_goes_on_to_the_same_curves(
    tmp_path: Path, fakes: Fakes, number: signal.Signals, at: tuple[int, int]
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    run_experiment(experiment(whole))

    def interrupt(run: int, step: int) -> None:
        if (run, step) == at:
            signal.raise_signal(number)

    fakes.bank = FakeBank(num_slots=1, on_step=interrupt)
    reason = run_experiment(experiment(tmp_path))
    assert reason == ("interrupted" if number == signal.SIGINT else "terminated")
    ended = {r.number: r.outcome for r in runs_of(tmp_path)}
    reasons = [o.verdict.reason for o in ended.values() if o is not None]
    assert reasons == [StopReason.DONE] * at[0] + [StopReason.INTERRUPTED]
    first = {p: p.stat().st_mtime_ns for n in range(at[0]) for p in run_files(tmp_path, n)}
    seconds = read_json(tmp_path / "out" / FILE)["wall_s"]
    fakes.bank = FakeBank(num_slots=1)
    assert run_experiment(experiment(tmp_path)) is None
    assert curves_of(tmp_path) == curves_of(whole)
    # What was done is not done again: neither finished runs nor steps of the one that ran.
    assert {p: p.stat().st_mtime_ns for p in first} == first
    assert fakes.bank.steps_done.get(at[0], 0) == 12 - at[1]
    assert read_json(tmp_path / "out" / FILE)["wall_s"] >= seconds


def run_files(folder: Path, number: int) -> list[Path]:
    return list((folder / "out" / "runs" / f"{number:05d}").glob("*.json*"))


def test_a_second_signal_ends_it_at_once_and_what_was_done_counts(
    tmp_path: Path, fakes: Fakes
) -> None:
    def interrupt(run: int, step: int) -> None:
        if (run, step) == (1, 7):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    fakes.bank = FakeBank(num_slots=1, on_step=interrupt)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment(tmp_path))
    assert signal.getsignal(signal.SIGINT) is before
    fakes.bank = FakeBank(num_slots=1)
    run_experiment(experiment(tmp_path))
    assert fakes.bank.steps_done == {1: 7, 2: 12, 3: 12}  # 1 from its checkpoint at 5
    assert [[row["step"] for row in r.evals] for r in runs_of(tmp_path)] == [[0, 5, 10, 12]] * 4


def test_interrupted_while_the_model_loads_nothing_is_left(
    tmp_path: Path, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> SimpleNamespace:
        signal.raise_signal(signal.SIGINT)
        return fakes.load(*_)  # pyright: ignore[reportArgumentType, reportCallIssue]

    monkeypatch.setattr(arms_runs, "load_ground", load)
    assert run_experiment(experiment(tmp_path)) == "interrupted"
    assert not (tmp_path / "out").exists()


def test_a_run_that_diverges_is_recorded_and_not_run_again(tmp_path: Path, fakes: Fakes) -> None:
    fakes.bank.nan_at = {1: 7}
    assert run_experiment(experiment(tmp_path)) is None
    run = runs_of(tmp_path)[1]
    assert run.outcome is not None
    assert run.outcome.verdict.reason is StopReason.DIVERGED
    assert [row["step"] for row in run.evals] == [0, 5, 7]
    fakes.bank = FakeBank(num_slots=1)
    run_experiment(experiment(tmp_path))
    assert fakes.bank.steps_done == {}
    assert len(fakes.loads) == 1


def test_a_run_that_fails_is_told_when_the_others_are_done_and_tried_again(
    tmp_path: Path, fakes: Fakes
) -> None:
    def fail(run: int, step: int) -> None:
        if run == 1 and step > 6:
            raise RuntimeError("scorer broke")

    fakes.bank = FakeBank(num_slots=1, on_step=fail)
    told = "1 run could not be trained; run 1: RuntimeError: scorer broke .*same call tries again"
    with pytest.raises(RunError, match=told):
        run_experiment(experiment(tmp_path, seeds=(3,)))
    assert [is_recorded(r) for r in runs_of(tmp_path)] == [True, False]
    assert read_json(tmp_path / "out" / FILE)["wall_s"] >= 0
    fakes.bank = FakeBank(num_slots=1)
    assert run_experiment(experiment(tmp_path, seeds=(3,))) is None
    assert fakes.bank.steps_done == {1: 7}


def test_a_run_that_is_given_up_does_not_stop_the_others(tmp_path: Path, fakes: Fakes) -> None:
    def fail(run: int, step: int) -> None:
        if run == 0 and step == 5:
            raise TrialFault((0,), "scorer gold raised ValueError: no")

    fakes.bank = FakeBank(num_slots=1, on_evaluate=fail)
    told = "1 run could not be trained; run 0: scorer gold raised ValueError: no"
    with pytest.raises(RunError, match=told):
        run_experiment(experiment(tmp_path))
    assert [is_recorded(r) for r in runs_of(tmp_path)] == [False, True, True, True]


def test_time_adds_up_over_calls(
    tmp_path: Path, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]

    def slow(run: int, step: int) -> None:
        clock[0] += 1.0
        if (run, step) == (1, 6) and fakes.loads == [tmp_path / "out"]:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    fakes.bank = FakeBank(num_slots=1, on_step=slow)
    run_experiment(experiment(tmp_path))
    assert read_json(tmp_path / "out" / FILE)["wall_s"] == 18.0
    fakes.bank = FakeBank(num_slots=1, on_step=slow)
    run_experiment(experiment(tmp_path))
    assert read_json(tmp_path / "out" / FILE)["wall_s"] == 4 * 12.0
    run_experiment(experiment(tmp_path))
    assert read_json(tmp_path / "out" / FILE)["wall_s"] == 4 * 12.0


def test_time_is_kept_run_by_run_so_that_a_kill_loses_little(
    tmp_path: Path, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, noted = [1000.0], list[float]()

    def slow(run: int, step: int) -> None:
        clock[0] += 1.0
        if step == 1:
            noted.append(read_json(tmp_path / "out" / FILE)["wall_s"])

    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    fakes.bank = FakeBank(num_slots=1, on_step=slow)
    run_experiment(experiment(tmp_path))
    assert noted == [0.0, 12.0, 24.0, 36.0]


def test_another_process_in_the_folder_is_refused_before_a_model_loads(
    tmp_path: Path, fakes: Fakes
) -> None:
    run_experiment(experiment(tmp_path, seeds=(3,)))
    script = (
        "import sys\nfrom pathlib import Path\nfrom kltune.study.lock import lock_study\n"
        f"with lock_study(Path({str(tmp_path / 'out')!r})):\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        told = rf"another kltune is working in .*out \(process {other.pid}\); wait for it or stop"
        with pytest.raises(StudyError, match=told):
            run_experiment(experiment(tmp_path))
        assert len(fakes.loads) == 1
        other.communicate("")
    assert run_experiment(experiment(tmp_path)) is None


def test_the_folder_is_held_while_it_trains_and_free_afterwards(
    tmp_path: Path, fakes: Fakes
) -> None:
    def second() -> None:
        with pytest.raises(StudyError, match="another kltune is working"):
            run_experiment(experiment(tmp_path))

    fakes.inside = second
    run_experiment(experiment(tmp_path))
    assert len(fakes.loads) == 1
    with lock_study(tmp_path / "out"):
        pass


def test_another_spec_is_refused_before_a_model_loads(tmp_path: Path, fakes: Fakes) -> None:
    run_experiment(experiment(tmp_path))
    with pytest.raises(StudyError, match=r"trainer\.steps: 12 in the study, 13 now"):
        run_experiment(experiment(tmp_path, overrides=("trainer.steps=13",)))
    with pytest.raises(StudyError, match="arm 'some' was another setting"):
        run_experiment(experiment(tmp_path, {"some": {"beta": 0.2, "penalty": "k2-loss"}}))
    assert len(fakes.loads) == 1
    assert len(runs_of(tmp_path)) == 4


def test_what_was_converted_stays_converted(
    tmp_path: Path, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = {"r": "trl-grpo-0.18"}
    run_experiment(experiment(tmp_path, arms))
    monkeypatch.setattr(arms_runs, "reference_scale", None)  # not measured again
    run_experiment(experiment(tmp_path, arms, seeds=(8,)))
    assert {r.setting.beta for r in runs_of(tmp_path)} == {0.04 * SCALE.sigma}
    assert read_json(tmp_path / "out" / FILE)["arms"]["r"]["beta"] == 0.04 * SCALE.sigma


def test_a_study_is_left_alone(tmp_path: Path, fakes: Fakes) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.db").touch()
    with pytest.raises(StudyError, match="holds a study of kltune"):
        run_experiment(experiment(tmp_path))
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["study.db"]
    assert fakes.loads == []


def test_arms_are_in_the_specs_units_and_differ_in_their_kl_alone(tmp_path: Path) -> None:
    spec = loaded_spec(tmp_path, "search.learning_rate={value: 0.5}", "seed=9").spec
    arms = {
        "loss": "trl-grpo-0.18",
        "reward": "stiennon",
        "steered": "ziegler-sentiment",
        "own": {"beta": 0.3, "penalty": "k2-loss", "learning_rate": 0.1},
        "plain": {"beta": 0.0},
    }
    found = settings_of(arms, spec, SCALE)
    assert list(found) == list(arms)
    assert found["loss"].beta == 0.04 * SCALE.sigma  # raw reward per nat = coefficient x sigma_R
    assert found["reward"].beta == 0.05
    assert found["steered"].target_kl == 6.0 / SCALE.mean_tokens  # nats/token
    # The search's rate is not used, by recipes as little as by arms that are written out.
    assert [one.learning_rate for one in found.values()] == [2e-3, 2e-3, 2e-3, 0.1, 2e-3]
    assert {one.seed for one in found.values()} == {9}


def test_a_run_whose_config_was_never_written_leaves_its_number_free(tmp_path: Path) -> None:
    (tmp_path / "out" / "runs" / "00000").mkdir(parents=True)
    asked = experiment(tmp_path, seeds=(1,))
    found = missing_runs(asked, settings_of(ARMS, asked.spec.spec, SCALE))
    assert [(r.number, r.attempt, r.along, r.stop) for r in found] == [
        (0, 1, True, 12),
        (1, 1, True, 12),
    ]
