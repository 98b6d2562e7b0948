"""A storage in; what asking and telling costs many workers at once out: errors, milliseconds, waits.

Each of 8 processes asks, reports three times and tells, 25 times over, as fast as it can: far more often than
training would. ``python -m tests.bench.storage_rounds`` starts a PostgreSQL of its own.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from optuna.exceptions import OptunaError
from sqlalchemy.exc import SQLAlchemyError

from kltune.errors import KltuneError
from kltune.spec.study import StudySpec
from kltune.study import crew
from kltune.study.ledger import Ledger
from kltune.study.lives import lives_of
from kltune.study.pruner import Standing
from kltune.study.storage import OpenStudy, load_study, open_study
from kltune.trial.outcome import StopReason, TrialOutcome, Verdict
from tests.fake_bank import small_spec

WORKERS, ROUNDS, REPORTS = 8, 25, 3


@dataclass
class Cost:
    """Of one worker, milliseconds."""

    open_ms: list[float] = field(default_factory=list[float])
    ask_ms: list[float] = field(default_factory=list[float])
    turn_ms: list[float] = field(default_factory=list[float])
    """Of asking and telling: waiting for the turn."""
    report_ms: list[float] = field(default_factory=list[float])
    tell_ms: list[float] = field(default_factory=list[float])
    repeats: int = 0
    """Calls that were repeated since the storage was busy or away."""
    errors: list[str] = field(default_factory=list[str])

    def timed(self, into: list[float], call: Callable[[], Any]) -> Any:
        """Call and note how long it took."""
        begin = time.perf_counter()
        answer = call()
        into.append(1000 * (time.perf_counter() - begin))
        return answer


def rounds(cost: Cost, path: Path, spec: StudySpec, count: int) -> None:
    """What one worker does."""
    opened: OpenStudy = cost.timed(cost.open_ms, lambda: open_study(path, spec))
    hold = opened.whose_turn._hold

    @contextmanager
    def timed_hold() -> Any:
        begin = time.perf_counter()
        with hold():
            cost.turn_ms.append(1000 * (time.perf_counter() - begin))
            yield

    object.__setattr__(opened.whose_turn, "_hold", timed_hold)
    try:
        with crew.join(path, "worker") as member:
            ledger = Ledger(opened, (), member)
            ledger.recover()
            for _ in range(count):
                asked = cost.timed(cost.ask_ms, ledger.ask)
                for step in range(1, REPORTS + 1):
                    standing = Standing(gold=0.1 * step, gold_se=0.01, kl=0.1 * step)
                    cost.timed(cost.report_ms, partial(ledger.report, asked, step, standing))
                done = Verdict(StopReason.DONE, "done")
                outcome = TrialOutcome(
                    *(asked.trial_number, asked.attempt, done, 20, 0.5, True, -0.5, 10)
                )
                cost.timed(cost.tell_ms, partial(ledger.tell, asked, outcome))
    finally:
        cost.repeats = opened.patience.waits
        opened.close()


def _worker(path: Path, spec: StudySpec, count: int, begin: Any, answers: Any) -> None:
    warnings.simplefilter("ignore")
    cost = Cost()
    begin.wait()
    try:
        rounds(cost, path, spec, count)
    except (KltuneError, SQLAlchemyError, OptunaError) as error:
        cost.errors.append(f"{type(error).__name__}: {error}")
    answers.put(cost)


def measure(path: Path, spec: StudySpec, workers: int, count: int) -> tuple[list[Cost], float]:
    """All workers at once, on a study that none of them has begun; their costs, and seconds in all."""
    context = multiprocessing.get_context("fork")
    answers, begin = context.Queue(), context.Event()
    members = [
        context.Process(target=_worker, args=(path, spec, count, begin, answers))
        for _ in range(workers)
    ]
    for member in members:
        member.start()
    since = time.perf_counter()
    begin.set()
    costs = [answers.get(timeout=600) for _ in members]
    seconds = time.perf_counter() - since
    for member in members:
        member.join()
    return costs, seconds


def check(path: Path, costs: Sequence[Cost], total: int) -> list[str]:
    """What went wrong; empty where every trial is there once."""
    problems = [error for cost in costs for error in cost.errors]
    trials = load_study(path).get_trials()
    lives = lives_of(trials)
    if len(trials) != total or [len(life) for life in lives] != [1] * total:
        problems.append(f"{len(lives)} trials in {len(trials)} attempts, not {total}")
    if not all(trial.state.is_finished() and trial.value == 0.5 for trial in trials):
        problems.append("a trial has no end")
    return problems


def spread(values: Sequence[float]) -> str:
    """Median and the 95th of 100, milliseconds."""
    ranked = sorted(values)
    return f"{ranked[len(ranked) // 2]:7.1f} /{ranked[int(0.95 * (len(ranked) - 1))]:8.1f}"


def main() -> None:
    """Print the table."""
    from tests.postgres_case import running

    server = running()
    urls: dict[str, str | None] = {"sqlite": None}
    if isinstance(server, str):
        print(server, file=sys.stderr)
    else:
        server.ask("CREATE DATABASE rounds")
        urls["PostgreSQL"] = server.url("rounds")
    print(f"{WORKERS} workers x {ROUNDS} rounds; milliseconds, median / 95th of 100")
    for name, url in urls.items():
        total = WORKERS * ROUNDS
        spec = small_spec(
            budget={"trials": total},
            storage={"url": url},
            sampler={"name": "random"} if "--random" in sys.argv else {},
        )
        path = Path(tempfile.mkdtemp()) / name
        path.mkdir()
        costs, seconds = measure(path, spec, WORKERS, ROUNDS)
        problems = check(path, costs, total)
        print(f"\n{name}: {seconds:.1f} s, {len(problems)} problems {problems[:3]}")
        print(f"  repeated calls  {sum(cost.repeats for cost in costs)}")
        for label in ("open", "ask", "report", "tell", "turn"):
            values = [value for cost in costs for value in getattr(cost, f"{label}_ms")]
            print(
                f"  {label:<8} {spread(values)}   (longest {max(values):.0f}, {len(values)} calls)"
            )


if __name__ == "__main__":
    main()
