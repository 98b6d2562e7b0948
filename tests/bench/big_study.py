"""A study of 2,000 recorded trials: what ask, tell, opening and the report cost as it grows, as a table.

    python tests/bench/big_study.py [--trials 2000] [--at 100,500,1000,2000] [--out OUT.json] [--keep FOLDER]

No model: the search runs through the real loop, ledger and folders with a bank that makes
curves up (80 steps and 9 evaluations a trial, rows as long as real ones). Between the marks
the settings are drawn at random, to get there in minutes; the last trials before each mark
are proposed by the spec's own sampler and timed, as are opening the study again and each
part of its report. Times are wall-clock time of one process, beside the CPU time that it took
(what a machine busy with other work leaves as it is).
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import resource
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Any, TypeVar

import optuna

from kltune.metrics.jsonl import read_json
from kltune.metrics.names import METRICS
from kltune.metrics.record import EvalMetrics, EvalSample, RewardScale, StepMetrics
from kltune.spec.load import from_resolved
from kltune.spec.study import StudySpec
from kltune.study import propose
from kltune.study.asked import Asked
from kltune.study.ledger import Ledger
from kltune.study.loop import run_search
from kltune.study.pruner import Standing, is_warm
from kltune.study.space import fixed_trials
from kltune.study.storage import OpenStudy, check_study, open_study
from kltune.trial.outcome import TrialOutcome, Verdict
from tests.fake_bank import QUIET, TOKENS, FakeBank, FakeSlot, kl_at
from tests.fake_study import ANSWERS, write_study

T = TypeVar("T")
SLOTS = 4
WINDOW = 25
"""Trials before a mark that are proposed by the sampler and timed."""
SCALE = RewardScale(sigma=0.62, std=0.8, mean=0.02, num_groups=32, mean_tokens=14.0)
CALLS = ("ask", "ask CPU", "tell", "tell CPU", "report", "report CPU", "judge", "judge CPU", "step")
"""Timed: the ledger's calls, and all that is recorded of one step of one trial."""
PARTS = (
    "read_study",
    "recommend",
    "_importance",
    "compose",
    "render_page",
    "render_markdown",
    "summarise",
    "curve_data",
    "write_json",
)
"""What `kltune.report.build` calls, timed each."""


class WordyBank(FakeBank):
    """A fake bank whose rows are as long as real ones, with noise on every number."""

    def __init__(self, seed: int, **size: Any) -> None:
        super().__init__(**size)
        self._rng = random.Random(seed)
        names = [m.name for m in METRICS.values() if m.scope == "step" and "anchor" not in m.name]
        self._names = [name for name in names if not name.startswith("kl/exact")]
        self.trained_at = 0.0
        """Clock after the latest step, seconds."""

    def train_step(self) -> tuple[StepMetrics, ...]:
        measured = super().train_step()
        self.trained_at = time.perf_counter()
        return measured

    def _train(self, slot: int, held: FakeSlot) -> StepMetrics:
        plain = super()._train(slot, held)
        made_up = {name: self._rng.random() for name in self._names}
        own = {"ctrl/beta": plain.beta, "train/proxy_mean": plain.proxy, "tokens/step": 640.0}
        return replace(plain, values={**made_up, **own})

    def _judge(self, slot: int, held: FakeSlot) -> EvalMetrics:
        kl = kl_at(held.spec, held.step, self._steps)
        # A hump over sqrt(KL), higher where beta is near 0.1, so that settings differ.
        skill = 4.0 - 0.4 * abs(math.log10(max(held.spec.beta, 1e-4)) + 1)
        gold = [skill * math.sqrt(kl) - 4 * kl + self._rng.gauss(0, 0.3) for _ in range(64)]
        proxy = [math.sqrt(kl) + self._rng.gauss(0, 0.1) for _ in gold]
        samples = tuple(
            EvalSample(
                f"food-{i}", "how long do I cook it ?", text, gold[i], proxy[i], kl, TOKENS, True
            )
            for i, text in enumerate(ANSWERS)
        )
        return EvalMetrics(
            slot=slot,
            trial_number=held.trial_number,
            step=held.step,
            gold=sum(gold) / 64,
            gold_se=0.3 / 8,
            proxy=sum(proxy) / 64,
            proxy_se=0.1 / 8,
            kl_token=kl,
            kl_seq=kl * TOKENS,
            gold_by_prompt=tuple(gold),
            proxy_by_prompt=tuple(proxy),
            values={"eval/completion_mean": float(TOKENS)},
            samples=samples,
        )


class TimedLedger(Ledger):
    """A ledger that notes how long each call took, by the mark whose window it fell into."""

    def __init__(self, opened: OpenStudy, bank: WordyBank, marks: Sequence[int]) -> None:
        super().__init__(opened, fixed_trials(opened.spec, SCALE))
        self._bank = bank
        self.seconds: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._own = propose.make_sampler
        is_lost = self.lease.is_lost

        def at_end_of_step(optuna_number: int) -> bool:
            self._note_step()
            return is_lost(optuna_number)

        self.lease.is_lost = at_end_of_step
        self._marks = marks
        self._num_told = 0
        self._noted_at = 0.0

    def ask(self) -> Asked | None:
        mark = self._mark()
        propose.make_sampler = _at_random if mark is None else self._own
        try:
            return self._timed("ask", super().ask)
        finally:
            propose.make_sampler = self._own

    def report(self, asked: Asked, step: int, standing: Standing) -> bool:
        ask = super().report
        return self._timed("report", lambda: ask(asked, step, standing))

    def judge_peers(self, asked: Asked, step: int) -> Verdict | None:
        judge = super().judge_peers
        if not is_warm(step, self.opened.spec.trainer.steps, self.opened.spec.pruning):
            return judge(asked, step)
        return self._timed("judge", lambda: judge(asked, step))

    def tell(self, asked: Asked, outcome: TrialOutcome, *, may_retry: bool = True) -> bool:
        tell = super().tell
        told = self._timed("tell", lambda: tell(asked, outcome, may_retry=may_retry))
        self._num_told += 1
        return told

    def _note_step(self) -> None:
        mark, trained_at = self._mark(), self._bank.trained_at
        if (
            mark is not None and trained_at != self._noted_at
        ):  # the rows of the step are on disk by now
            seconds = (time.perf_counter() - trained_at) / self._bank.occupancy[-1]
            self.seconds[mark]["step"].append(seconds)
        self._noted_at = trained_at

    def _mark(self) -> int | None:
        return next((m for m in self._marks if m - WINDOW <= self._num_told < m), None)

    def _timed(self, name: str, call: Callable[[], T]) -> T:
        mark, begin, cpu = self._mark(), time.perf_counter(), time.thread_time()
        result = call()
        if mark is not None:
            self.seconds[mark][name].append(time.perf_counter() - begin)
            self.seconds[mark][f"{name} CPU"].append(time.thread_time() - cpu)
        return result


def _at_random(_spec: StudySpec, number: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.RandomSampler(seed=number)


def make_study(folder: Path, trials: int, marks: Sequence[int]) -> dict[str, Any]:
    """Run the whole search; times by mark and call, in milliseconds."""
    guards = {**QUIET, "kl": {"limit": 1.5, "patience": 3}}
    write_study(folder, (), budget={"trials": trials, "slots": SLOTS}, guards=guards)
    spec = from_resolved(read_json(folder / "resolved.json"))
    opened = open_study(folder, spec)
    bank = WordyBank(seed=1, num_slots=SLOTS, steps=spec.trainer.steps)
    ledger = TimedLedger(opened, bank, marks)
    begin = time.perf_counter()
    end = run_search(bank, ledger, SCALE.sigma)
    wall_s = time.perf_counter() - begin
    opened.close()
    calls = {
        mark: {name: _spread(by_name[name]) for name in CALLS if name in by_name}
        for mark, by_name in sorted(ledger.seconds.items())
    }
    return {"calls_ms": calls, "made_s": wall_s, "trials_ended": end.trials_ended}


def measure_opening(study: Path, folder: Path) -> dict[str, float]:
    """Seconds to check, open and take up a copy of the study in ``folder``, and for the first asks."""
    for name in ("study.db", "resolved.json"):
        shutil.copy(study / name, folder / name)
    spec = from_resolved(read_json(folder / "resolved.json"))
    spec = spec.model_copy(
        update={"budget": spec.budget.model_copy(update={"trials": spec.budget.trials + 2})}
    )
    seconds: dict[str, float] = {}

    def timed(name: str, call: Callable[[], T]) -> T:
        begin = time.perf_counter()
        result = call()
        seconds[name] = time.perf_counter() - begin
        return result

    timed("check", lambda: check_study(folder, spec))
    opened = timed("open", lambda: open_study(folder, spec))
    ledger = timed("ledger", lambda: Ledger(opened, fixed_trials(spec, SCALE)))
    timed("recover", ledger.recover)
    timed("first ask", ledger.ask)
    timed("second ask", ledger.ask)
    timed("best", ledger.best)
    timed("ended", ledger.num_ended)
    opened.close()
    return {**seconds, "peak_mib": _peak_mib()}


def measure_report(folder: Path) -> dict[str, Any]:
    """Seconds of each part of the report and of the whole, MiB of each file, peak memory."""
    import kltune.report.build as build

    seconds: dict[str, float] = defaultdict(float)

    def timed(name: str, call: Callable[..., T]) -> Callable[..., T]:
        def wrapped(*args: Any) -> T:
            begin = time.perf_counter()
            result = call(*args)
            seconds[name.lstrip("_")] += time.perf_counter() - begin
            return result

        return wrapped

    for name in PARTS:
        setattr(build, name, timed(name, getattr(build, name)))
    begin, cpu = time.perf_counter(), time.process_time()
    paths = build.build_report(folder)
    seconds["all"] = time.perf_counter() - begin
    seconds["all, CPU time"] = time.process_time() - cpu
    sizes = {p.name: p.stat().st_size / 2**20 for p in (paths.html, paths.markdown, paths.json)}
    return {"seconds": dict(seconds), "mib": sizes, "peak_mib": _peak_mib()}


def print_tables(found: dict[str, Any]) -> None:
    """For people."""
    print(f"{found['trials_ended']} trials made in {found['made_s']:.0f} s, {SLOTS} at once")
    print(f"{'trials':>7}  {'call':<10} {'calls':>6} {'p50 ms':>8} {'p95 ms':>8} {'max ms':>8}")
    for mark, by_name in found["calls_ms"].items():
        for name, (count, p50, p95, most) in by_name.items():
            print(f"{mark:>7}  {name:<10} {count:>6} {p50:>8.1f} {p95:>8.1f} {most:>8.1f}")
    for part in ("opening", "report"):
        numbers = found[part]
        print(f"\n{part}: peak memory {numbers['peak_mib']:.0f} MiB")
        for name, seconds in numbers.get("seconds", numbers).items():
            if name != "peak_mib":
                print(f"  {name:<16} {seconds:8.2f} s")
    for name, mib in found["report"]["mib"].items():
        print(f"  {name:<16} {mib:8.2f} MiB")


def _spread(seconds: Sequence[float]) -> tuple[int, float, float, float]:
    """Number of calls, median, 95th percentile and the longest, in milliseconds."""
    cuts = quantiles(seconds, n=20, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 19
    return len(seconds), 1e3 * cuts[9], 1e3 * cuts[18], 1e3 * max(seconds)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Read the options, measure each stage in a process of its own, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--at", default="100,500,1000,2000")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--keep", type=Path, help="where the study is left; a finished one is reused"
    )
    options = parser.parse_args()
    marks = [mark for mark in map(int, options.at.split(",")) if mark <= options.trials]
    fresh = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="big-study-") as scratch,
        fresh.Pool(1, maxtasksperchild=1) as pool,
    ):
        folder = options.keep or Path(scratch) / "study"
        made = {"calls_ms": {}, "made_s": 0.0, "trials_ended": options.trials}
        if not (folder / "study.db").exists():
            made = pool.apply(make_study, (folder, options.trials, marks))
        found = {
            **made,
            "opening": pool.apply(measure_opening, (folder, Path(scratch))),
            "report": pool.apply(measure_report, (folder,)),
        }
    print_tables(found)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
