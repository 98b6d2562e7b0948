"""Runs are trained to their own stop, judged once, and survive faults and interruptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_search import stop_after

from kltune.errors import OutOfMemoryFault, RunError, TrialFault
from kltune.spec.penalty import Penalty
from kltune.spec.trial import TrialSpec
from kltune.study.repeat import RepeatEnd, Run, Where, repeat
from kltune.trial.outcome import StopReason
from kltune.trial.record import TrialRecord, read_trial
from tests.fake_bank import FakeBank, small_spec
from tests.hasty_bank import HastyBank


def run(number: int, stop: int, seed: int = 7) -> Run:
    setting = TrialSpec(beta=0.1, penalty=Penalty.K2_LOSS, learning_rate=1e-3, seed=seed)
    return Run(number, setting, stop, "confirm:4", {"split": "test"})


def along(number: int, stop: int, attempt: int = 1) -> Run:
    return Run(number, run(number, stop).setting, stop, "arm:a", attempt=attempt, along=True)


def where(folder: Path) -> Where:
    return Where(folder, small_spec(), 0.5)


def record_of(folder: Path, number: int) -> TrialRecord:
    return read_trial(folder / "runs" / f"{number:05d}")


def judged_at(folder: Path, number: int) -> list[int]:
    """Steps of the evaluations that count."""
    return [row["step"] for row in record_of(folder, number).evals]


def raising(error: Exception, at: tuple[int, int], times: int = 1) -> Callable[[int, int], None]:
    left = [times]

    def on(number: int, step: int) -> None:
        if (number, step) == at and left[0] > 0:
            left[0] -= 1
            raise error

    return on


@pytest.mark.parametrize("kind", [FakeBank, HastyBank])
def test_each_run_stops_at_its_own_step_and_is_judged_once_there(
    tmp_path: Path, kind: type[FakeBank]
) -> None:
    bank, judged = kind(2), []
    runs = [run(0, 7), run(1, 3), run(2, 12), run(3, 0)]
    end = repeat(bank, runs, where(tmp_path), lambda r, m: judged.append((r.number, m.step)))
    assert end == RepeatEnd(None, {})
    assert sorted(judged) == [(0, 7), (1, 3), (2, 12), (3, 0)]
    assert bank.steps_done == {0: 7, 1: 3, 2: 12}
    for one in runs:
        record = read_trial(tmp_path / "runs" / f"{one.number:05d}")
        assert [row["step"] for row in record.evals] == [one.stop]
        assert len(record.steps) == one.stop
        assert record.outcome is not None
        assert record.outcome.verdict.reason is StopReason.DONE
        assert record.events[0]["stop"] == one.stop
        assert record.events[0]["split"] == "test"
        assert not (record.folder / "checkpoints").exists()


@pytest.mark.parametrize("kind", [FakeBank, HastyBank])
def test_an_interrupted_run_goes_on_from_where_it_was(tmp_path: Path, kind: type[FakeBank]) -> None:
    bank = kind(1)
    end = repeat(bank, [run(0, 10)], where(tmp_path), should_stop=stop_after(4))
    assert end.reason is not None
    record = read_trial(tmp_path / "runs" / "00000")
    assert record.outcome is not None
    assert record.outcome.verdict.reason is StopReason.INTERRUPTED
    assert not record.evals
    again = Run(0, run(0, 10).setting, 10, "confirm:4", {}, attempt=2)
    assert repeat(bank, [again], where(tmp_path)).reason is None
    record = read_trial(tmp_path / "runs" / "00000")
    assert [row["step"] for row in record.steps] == list(range(1, 11))
    assert bank.steps_done == {0: 10}


def test_a_run_that_diverges_is_judged_at_the_weights_before(tmp_path: Path) -> None:
    bank = FakeBank(num_slots=2)
    bank.nan_at = {0: 4}
    repeat(bank, [run(0, 9), run(1, 9)], where(tmp_path))
    record = read_trial(tmp_path / "runs" / "00000")
    assert record.outcome is not None
    assert record.outcome.verdict.reason is StopReason.DIVERGED
    assert [row["step"] for row in record.evals] == [4]
    assert len(read_trial(tmp_path / "runs" / "00001").steps) == 9


def test_a_failing_run_is_tried_again_and_does_not_stop_the_others(tmp_path: Path) -> None:
    bank = FakeBank(num_slots=1, on_step=raising(RuntimeError("cuda lost"), (0, 3)))
    assert repeat(bank, [run(0, 6), run(1, 6)], where(tmp_path)) == RepeatEnd(None, {})
    record = read_trial(tmp_path / "runs" / "00000")
    assert record.attempt == 2
    assert [row["step"] for row in record.steps] == list(range(1, 7))


def test_a_run_whose_reward_raises_is_given_up_with_its_words(tmp_path: Path) -> None:
    fault = TrialFault((0,), "scorer gold raised ValueError: no")
    bank = FakeBank(num_slots=1, on_evaluate=raising(fault, (0, 6)))
    end = repeat(bank, [run(0, 6), run(1, 6)], where(tmp_path))
    assert end.failed == {0: "scorer gold raised ValueError: no"}
    record = read_trial(tmp_path / "runs" / "00001")
    assert record.outcome is not None
    assert record.outcome.verdict.reason is StopReason.DONE


def test_without_memory_for_two_one_is_put_back_and_both_are_done(tmp_path: Path) -> None:
    bank = FakeBank(num_slots=2, on_step=raising(OutOfMemoryFault((0,), "no memory"), (0, 2)))
    assert repeat(bank, [run(0, 6), run(1, 6)], where(tmp_path)) == RepeatEnd(None, {})
    assert bank.num_slots == 1
    assert all(read_trial(tmp_path / "runs" / f"0000{n}").evals for n in (0, 1))


def test_training_that_fails_whatever_runs_ends_the_command(tmp_path: Path) -> None:
    bank = FakeBank(num_slots=1, on_step=raising(RuntimeError("broken"), (0, 1), times=99))
    with pytest.raises(RunError, match="3 times in a row: RuntimeError: broken"):
        repeat(bank, [run(0, 6), run(1, 6)], where(tmp_path))


@pytest.mark.parametrize("kind", [FakeBank, HastyBank])
def test_a_run_judged_along_is_judged_at_0_every_few_steps_and_at_its_stop(
    tmp_path: Path, kind: type[FakeBank]
) -> None:
    bank, ended = kind(2), []
    runs = [along(0, 12), along(1, 10), run(2, 12), along(3, 0), along(4, 3)]
    end = repeat(bank, runs, where(tmp_path), lambda r, m: ended.append((r.number, m.step)))
    assert end == RepeatEnd(None, {})
    places = [judged_at(tmp_path, number) for number in range(5)]
    assert places == [[0, 5, 10, 12], [0, 5, 10], [12], [0], [0, 3]]
    # Told once a run, at its end.
    assert sorted(ended) == [(0, 12), (1, 10), (2, 12), (3, 0), (4, 3)]
    assert bank.steps_done == {0: 12, 1: 10, 2: 12, 4: 3}
    assert all(record_of(tmp_path, n).overtaken_evals == () for n in range(5))


def test_a_bank_is_told_that_an_evaluation_follows(tmp_path: Path) -> None:
    alone, all_along = FakeBank(1), FakeBank(1)
    repeat(alone, [run(0, 7)], where(tmp_path / "a"))
    repeat(all_along, [along(0, 7)], where(tmp_path / "b"))
    told = [[(one[0].steps, one[0].is_judged) for one in b.foreseen] for b in (alone, all_along)]
    assert told[0] == [(n, False) for n in (5, 4, 3, 2, 1)] + [(2, True), (1, True)]
    assert told[1] == [(n, True) for n in (5, 4, 3, 2, 1, 2, 1)]


@pytest.mark.parametrize("kind", [FakeBank, HastyBank])
@pytest.mark.parametrize("calls", [1, 2, 5, 6, 7, 8, 12])
def test_interrupted_anywhere_it_has_each_evaluation_once_and_the_same(
    tmp_path: Path, kind: type[FakeBank], calls: int
) -> None:
    whole = tmp_path / "whole"
    repeat(kind(1), [along(0, 12)], where(whole))
    assert repeat(kind(1), [along(0, 12)], where(tmp_path), should_stop=stop_after(calls)).reason
    outcome = record_of(tmp_path, 0).outcome
    assert outcome is not None
    assert outcome.verdict.reason is StopReason.INTERRUPTED
    again = kind(1)
    assert repeat(again, [along(0, 12, attempt=2)], where(tmp_path)).reason is None
    assert judged_at(tmp_path, 0) == [0, 5, 10, 12]
    one, other = record_of(tmp_path, 0), record_of(whole, 0)
    assert [row["step"] for row in one.steps] == list(range(1, 13))
    assert [row["eval/gold"] for row in one.evals] == [row["eval/gold"] for row in other.evals]
    assert again.steps_done[0] == 12 - outcome.steps_run


@pytest.mark.parametrize("kind", [FakeBank, HastyBank])
def test_killed_after_its_checkpoint_it_has_each_evaluation_once(
    tmp_path: Path, kind: type[FakeBank]
) -> None:
    class Killed(BaseException):
        pass

    def die(number: int, step: int) -> None:
        if step == 8:
            raise Killed

    bank = kind(1)
    bank._on_step = die  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(Killed):
        repeat(bank, [along(0, 12)], where(tmp_path))
    assert record_of(tmp_path, 0).outcome is None
    again = kind(1)
    repeat(again, [along(0, 12, attempt=2)], where(tmp_path))
    assert judged_at(tmp_path, 0) == [0, 5, 10, 12]
    assert [row["step"] for row in record_of(tmp_path, 0).steps] == list(range(1, 13))
    assert again.steps_done == {0: 7}


def test_a_run_judged_along_that_diverges_is_judged_there_and_ends(tmp_path: Path) -> None:
    bank, ended = FakeBank(num_slots=2), []
    bank.nan_at = {0: 7, 2: 5}
    runs = [along(0, 12), along(1, 12), along(2, 12)]
    end = repeat(bank, runs, where(tmp_path), lambda r, m: ended.append(r.number))
    assert end == RepeatEnd(None, {})
    assert judged_at(tmp_path, 0) == [0, 5, 7]
    assert judged_at(tmp_path, 1) == [0, 5, 10, 12]
    assert judged_at(tmp_path, 2) == [0, 5]
    outcomes = [record_of(tmp_path, n).outcome for n in range(3)]
    assert all(outcome is not None for outcome in outcomes)
    found = [(o.verdict.reason, o.steps_run) for o in outcomes if o is not None]
    diverged, done = StopReason.DIVERGED, StopReason.DONE
    assert found == [(diverged, 7), (done, 12), (diverged, 5)]
    assert sorted(ended) == [0, 1, 2]
    assert bank.free_slots() == (0, 1)


def test_an_evaluation_that_fails_on_the_way_is_tried_again(tmp_path: Path) -> None:
    bank = FakeBank(num_slots=1, on_evaluate=raising(RuntimeError("cuda lost"), (0, 5)))
    assert repeat(bank, [along(0, 12)], where(tmp_path)) == RepeatEnd(None, {})
    assert judged_at(tmp_path, 0) == [0, 5, 10, 12]
    assert record_of(tmp_path, 0).attempt == 2
    assert bank.steps_done == {0: 12}  # it went on from its checkpoint
