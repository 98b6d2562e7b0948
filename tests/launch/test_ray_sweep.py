"""A cluster's sweep against a cluster that exists in words only: starts, losses, ends; the real one is in tests/e2e."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kltune.errors import EnvironmentMissingError, ExitCode, RunError
from kltune.launch import signals
from kltune.launch.fleet import Fleet
from kltune.launch.fleet_screen import FleetScreen
from kltune.launch.ray_sweep import _Sweep, worker_words
from kltune.launch.ray_worker import News, Place
from kltune.launch.request import SweepRequest


@dataclass
class _Call:
    """A remote method: what it is to give."""

    answers: Any

    def remote(self, *_: object) -> tuple[int, object]:
        return next(_NUMBERS), next(self.answers)


_NUMBERS = itertools.count()


class _Actor:
    def __init__(self, *news: object) -> None:
        self.place = _Call(itertools.repeat(Place(17, "")))
        self.news = _Call(iter(news))
        self.stopped: list[int] = []
        self.stop = _Call(itertools.repeat(None))
        self.finish = _Call(itertools.repeat(News(("saved",), 75)))


@dataclass
class _Cluster:
    """Nodes a and b; each worker that is started is the next of ``actors``."""

    actors: list[_Actor]
    nodes_now: dict[str, dict[str, float]] = field(
        default_factory=lambda: {"a": {"CPU": 1.0}, "b": {"CPU": 1.0}}
    )
    dropped: list[_Actor] = field(default_factory=list)
    words: list[tuple[str, ...]] = field(default_factory=list)

    def nodes(self) -> dict[str, dict[str, float]]:
        return self.nodes_now

    def start(self, node: str, gpus: float, words: tuple[str, ...], *_: object) -> _Actor:
        self.words.append(words)
        return self.actors.pop(0)

    def ready(self, refs: list[Any], seconds: float) -> list[Any]:
        return refs

    def answer(self, ref: tuple[int, object]) -> object:
        return ref[1]

    def drop(self, actor: _Actor) -> None:
        self.dropped.append(actor)


def _sweep(cluster: _Cluster, tmp_path: Path, most: int = 1) -> _Sweep:
    return _Sweep(
        cluster, Fleet(most, gpus=0.0), FleetScreen("study"), tmp_path, ("worker",), {}, "marker"  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


def _never() -> str | None:
    return None


def test_a_worker_that_is_lost_is_replaced_and_the_study_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = _Actor("ActorDiedError: the node is gone")
    done = _Actor(News(("trial 0 complete",), None), News((), 0))
    cluster = _Cluster([lost, done])
    assert _sweep(cluster, tmp_path).run(_never) is ExitCode.DONE  # pyright: ignore[reportArgumentType]
    said = capsys.readouterr().err
    assert "worker 0 is lost: ActorDiedError: the node is gone" in said
    assert "worker 1: trial 0 complete" in said
    assert cluster.dropped == [lost, done]


def test_workers_that_can_do_nothing_end_it_with_their_words(tmp_path: Path) -> None:
    cluster = _Cluster([_Actor(News(("error: no memory",), 1)) for _ in range(9)])
    with pytest.raises(RunError, match="error: no memory"):
        _sweep(cluster, tmp_path).run(_never)  # pyright: ignore[reportArgumentType]


def test_what_one_machine_lacks_is_said_with_its_own_code(tmp_path: Path) -> None:
    cluster = _Cluster([_Actor(News(("error: no such extra",), 5))])
    with pytest.raises(EnvironmentMissingError, match="no such extra"):
        _sweep(cluster, tmp_path).run(_never)  # pyright: ignore[reportArgumentType]


def test_a_stop_lets_workers_save_and_keeps_its_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = _Cluster([_Actor(*[News((), None)] * 100)])
    reasons = itertools.chain([None, None], itertools.repeat(signals.TERMINATE))
    code = _sweep(cluster, tmp_path).run(lambda: next(reasons))  # pyright: ignore[reportArgumentType]
    assert code is ExitCode.TERMINATED
    assert "worker 0: saved" in capsys.readouterr().err
    assert len(cluster.dropped) == 1


def test_the_words_of_a_worker_say_all_that_the_sweep_was_asked_for(tmp_path: Path) -> None:
    request = SweepRequest(
        spec_path=Path("s.yaml"), trials=4, slots=2, seed=7, storage="postgresql://host/db",
        overrides=("trainer.steps=3",),
    )  # fmt: skip
    assert worker_words(request, Path("sweeps/s.yaml"), tmp_path) == (
        "worker", "sweeps/s.yaml", "--study", str(tmp_path), "--storage", "postgresql://host/db",
        "--set", "trainer.steps=3", "--set", "budget.trials=4", "--set", "budget.slots=2", "--set", "seed=7",
    )  # fmt: skip
