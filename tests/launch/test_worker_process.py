"""What a worker process does with commands: run here in a thread, over a real pipe."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from collections.abc import Generator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from spec_files import minimal, write

from kltune.errors import KltuneError, OutOfMemoryFault, RunError, TrialFault
from kltune.launch.worker_process import Job, Skipped, obey
from kltune.metrics.record import RewardScale, StepMetrics
from kltune.spec.load import load_spec
from kltune.spec.trial import TrialSpec
from tests.fake_bank import FakeBank

SETTING = TrialSpec(beta=0.0, learning_rate=1e-3)


class OddError(RuntimeError):
    """Can't be pickled back: its constructor wants two arguments and keeps one."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


class OddValueError(ValueError):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


@pytest.fixture
def served() -> Generator[tuple[Connection, FakeBank]]:
    ours, theirs = multiprocessing.Pipe()
    bank = FakeBank(2)
    thread = threading.Thread(target=obey, args=(theirs, bank))
    thread.start()
    yield ours, bank
    ours.close()
    thread.join(timeout=10)
    assert not thread.is_alive()  # a closed pipe ends the worker
    theirs.close()


def ask(pipe: Connection, name: str, *arguments: object, number: int = 1, link: object = None):
    pipe.send((number, name, arguments, link))
    assert pipe.poll(10)
    return pipe.recv()


def test_commands_are_carried_out_and_numbered_replies_come_back(
    served: tuple[Connection, FakeBank], tmp_path: Path
) -> None:
    pipe, bank = served
    assert ask(pipe, "admit", 1, 7, SETTING, None, number=5) == (5, 0, None)
    number, (measured,), error = ask(pipe, "train_step", number=6)
    assert (number, measured.slot, measured.trial_number, error) == (6, 1, 7, None)
    _, (judged,), _ = ask(pipe, "evaluate", [1])
    assert judged.step == 1
    assert ask(pipe, "save_checkpoint", 1, tmp_path / "last")[2] is None
    assert (tmp_path / "last" / "slot.json").exists()
    ask(pipe, "evict", 1)
    assert bank.free_slots() == (0, 1)


@pytest.mark.parametrize(
    "error",
    [
        TrialFault((1,), "proxy raised"),
        OutOfMemoryFault((0, 1), "no room"),
        RunError("the checkpoint can't be used"),
        RuntimeError("CUDA error: out of memory"),
        MemoryError("no room"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_as_it_is(
    served: tuple[Connection, FakeBank], error: Exception
) -> None:
    pipe, bank = served

    def fail(trial_number: int, step: int) -> None:
        raise error

    bank._on_step = fail
    ask(pipe, "admit", 0, 7, SETTING, None)
    _, value, raised = ask(pipe, "train_step")
    assert value is None
    assert type(raised) is type(error)
    assert (raised.args, str(raised)) == (error.args, str(error))
    assert hasattr(raised, "__notes__") is not isinstance(error, KltuneError)
    assert ask(pipe, "evict", 0)[2] is None  # and the worker goes on


@pytest.mark.parametrize(
    ("error", "kind"), [(OddError("a", "b"), RuntimeError), (OddValueError("a", "b"), RunError)]
)
def test_an_error_that_does_not_survive_pickling_comes_back_in_words(
    served: tuple[Connection, FakeBank], error: Exception, kind: type[Exception]
) -> None:
    pipe, bank = served

    def fail(trial_number: int, step: int) -> None:
        raise error

    bank._on_step = fail
    ask(pipe, "admit", 0, 7, SETTING, None)
    raised = ask(pipe, "train_step")[2]
    assert type(raised) is kind
    assert str(raised) == f"{type(error).__name__}: a"


def test_a_job_survives_the_way_to_another_process(tmp_path: Path) -> None:
    scale = RewardScale(sigma=0.5, std=0.5, mean=0.0, num_groups=8, mean_tokens=20.0)
    job = Job(load_spec(write(tmp_path, minimal())), tmp_path, scale, slots=2)
    assert pickle.loads(pickle.dumps(job)) == job


def too_far(metrics: StepMetrics) -> bool:
    return metrics.step >= 2


def test_the_rest_of_a_chain_is_skipped_after_a_step_that_halts_it(
    served: tuple[Connection, FakeBank],
) -> None:
    pipe, bank = served
    ask(pipe, "admit", 0, 7, SETTING, None)
    values = [ask(pipe, "train_step", link=(1, too_far, 60.0))[1] for _ in range(3)]
    assert [value[0].step for value in values[:2]] == [1, 2]
    assert isinstance(values[2], Skipped)
    assert isinstance(ask(pipe, "evaluate", [0], link=(1, too_far, 60.0))[1], Skipped)
    assert bank.steps_done == {7: 2}
    (other,) = ask(pipe, "train_step", link=(2, None, 60.0))[1]  # another chain goes on
    assert other.step == 3


def test_the_rest_of_a_chain_is_skipped_after_an_error(
    served: tuple[Connection, FakeBank],
) -> None:
    pipe, bank = served

    def fail(trial_number: int, step: int) -> None:
        if step == 1:
            raise TrialFault((0,), "proxy raised")

    ask(pipe, "admit", 0, 7, SETTING, None)
    bank._on_step = fail
    assert str(ask(pipe, "train_step", link=(1, None, 60.0))[2]) == "proxy raised"
    assert isinstance(ask(pipe, "train_step", link=(1, None, 60.0))[1], Skipped)


def test_the_rest_of_a_chain_is_skipped_once_its_time_is_up_but_never_its_first_command() -> None:
    now = [0.0]

    def slow(trial_number: int, step: int) -> None:
        now[0] += (
            2.0 if step <= 4 else 9.0
        )  # from the fifth on a step is longer than a chain may be

    ours, theirs = multiprocessing.Pipe()
    bank = FakeBank(1, on_step=slow)
    thread = threading.Thread(target=obey, args=(theirs, bank, lambda: now[0]))
    thread.start()
    ask(ours, "admit", 0, 7, SETTING, None)
    done: list[list[int]] = []
    for chain in range(4):
        values = [ask(ours, "train_step", link=(chain, None, 3.0))[1] for _ in range(4)]
        done.append([value[0].step for value in values if not isinstance(value, Skipped)])
        assert isinstance(ask(ours, "evaluate", [0], link=(chain, None, 3.0))[1], Skipped)
    assert done == [[1, 2], [3, 4], [5], [6]]
    assert ask(ours, "train_step")[1][0].step == 7  # what is no chain is always done
    ours.close()
    thread.join(timeout=10)
    theirs.close()
