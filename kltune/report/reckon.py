"""A study in, its accounting out, and that as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from kltune.report.accounting import (
    CUTS,
    Accounting,
    Bill,
    Cut,
    FullTrial,
    Limit,
    Shared,
    Steps,
    Time,
)
from kltune.report.rows import StudyRows, TrialRow
from kltune.report.trial_cost import PHASES, Work
from kltune.trial.outcome import StopReason, TrialState


def account(study: StudyRows) -> Accounting:
    """Reckon up a study, whatever state it is in."""
    time = _time(study)
    return Accounting(
        steps=_steps(study),
        time=time,
        shared=_shared(study, time),
        limit=_limit(study, time),
        full_trial=_full_trial(study, time),
        bill=_bill(study, time),
    )


def accounting_data(found: Accounting) -> dict[str, Any]:
    """The same as plain data, with what follows from it; seconds end in ``_s``."""
    steps, time = found.steps, found.time
    return {
        "steps": {
            "trials_ended": steps.trials,
            "planned": steps.planned,
            "run": steps.run,
            "spared": steps.spared,
            "spared_s": steps.spared_s,
            "cuts": [
                {
                    "reason": c.reason.value,
                    "trials": c.trials,
                    "steps": c.steps,
                    "worker_s": c.seconds,
                }
                for c in steps.cuts
            ],
            "failed_short": steps.failed_short,
            "wasted": steps.wasted.rows,
            "wasted_s": steps.wasted.seconds,
        },
        "time": {
            "wall_s": time.wall_s,
            "trainer_s": time.trainer_s,
            "worker_s": time.worker_s,
            "busy_s": time.busy_s,
            "is_whole": time.is_whole,
            "bookkeeping_frac": time.bookkeeping_frac,
            "steps": time.steps.rows,
            "steps_s": time.steps.seconds,
            "evaluations": time.evaluations.rows,
            "evaluations_s": time.evaluations.seconds,
            "phases_s": dict(time.phases),
        },
        "shared": {
            **asdict(found.shared),
            "factor": found.shared.factor,
            "bound": found.shared.bound,
        },
        "limit": asdict(found.limit),
        "full_trial": asdict(found.full_trial),
        "price": None if found.bill is None else asdict(found.bill),
    }


def _steps(study: StudyRows) -> Steps:
    each = study.spec.trainer.steps
    ended = [row for row in study.trials if _is_over(row)]
    failed = [row for row in ended if row.state is TrialState.FAILED]
    wasted = sum((row.cost.redone for row in study.trials), Work())
    return Steps(
        trials=len(ended),
        planned=each * len(ended),
        run=sum(min(row.steps_run, each) for row in ended),
        cuts=tuple(cut for reason in CUTS if (cut := _cut(ended, reason, each)) is not None),
        failed_short=sum(max(0, each - row.steps_run) for row in failed if row.reason not in CUTS),
        wasted=sum((row.cost.steps for row in failed), wasted),
    )


def _is_over(row: TrialRow) -> bool:
    return row.state not in (TrialState.RUNNING, TrialState.INTERRUPTED)


def _cut(ended: list[TrialRow], reason: StopReason, each: int) -> Cut | None:
    short = [row for row in ended if row.reason is reason]  # one at its last step spared 0
    if not short:
        return None
    spared = [max(0, each - row.steps_run) for row in short]
    means = [row.cost.steps.mean_s for row in short]
    known = [
        n * mean if mean else 0.0
        for n, mean in zip(spared, means, strict=True)
        if mean is not None or not n
    ]
    seconds = sum(known) if len(known) == len(short) else None
    return Cut(reason, len(short), sum(spared), seconds)


def _time(study: StudyRows) -> Time:
    timing = study.timing
    wall_s = _number(timing, "wall_s")
    phases = [row.cost.phases for row in study.trials if row.cost.phases is not None]
    return Time(
        wall_s=wall_s,
        trainer_s=_number(timing, "trainer_s"),
        # A file without worker_s is from when every session was one process.
        worker_s=_number(timing, "worker_s") if "worker_s" in timing else wall_s,
        bookkeeping_frac=_number(timing, "bookkeeping_frac"),
        steps=sum((row.cost.steps + row.cost.redone for row in study.trials), Work()),
        evaluations=sum((row.cost.evaluations for row in study.trials), Work()),
        phases={name: sum(p[name] for p in phases) for name in PHASES} if phases else {},
    )


def _shared(study: StudyRows, time: Time) -> Shared:
    found: object = study.timing.get("placement")
    placement = cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    def count(name: str) -> int | None:
        value = placement.get(name)
        return value if isinstance(value, int) else None

    return Shared(
        workers=count("workers"),
        slots=count("slots"),
        threads=count("threads"),
        alone_step_s=_number(study.timing, "alone_step_s"),
        placed_step_s=_number(study.timing, "placed_step_s"),
        realised_step_s=time.wall_per_step_s,
    )


def _limit(study: StudyRows, time: Time) -> Limit:
    peak = _number(study.timing, "peak_gflops")
    steps, everything = time.steps, time.steps + time.evaluations
    is_counted = everything.rows > 0 and not everything.uncounted

    def share(gflop: float, seconds: float | None) -> float | None:
        if peak is None or not seconds or not is_counted:
            return None
        return gflop / (seconds * peak)

    return Limit(
        peak_gflops=peak,
        gflop=everything.gflop if is_counted else None,
        uncounted=everything.uncounted,
        overall=share(everything.gflop, time.wall_s if time.is_whole else None),
        training=share(steps.gflop, time.train_wall_s),
    )


def _full_trial(study: StudyRows, time: Time) -> FullTrial:
    steps, every = study.spec.trainer.steps, study.spec.evaluate.every
    evaluations = 1 + math.ceil(steps / every)
    step_s, evaluation_s = time.steps.mean_s, time.evaluations.mean_s
    if step_s is None or evaluation_s is None:
        return FullTrial(steps, evaluations, None, None)
    seconds = steps * step_s + evaluations * evaluation_s
    if time.wall_s is None or not time.is_whole:
        return FullTrial(steps, evaluations, seconds, None)
    return FullTrial(steps, evaluations, seconds, 100 * seconds * time.wall_s / time.busy_s)


def _bill(study: StudyRows, time: Time) -> Bill | None:
    price = study.spec.budget.price
    if price is None:
        return None
    if time.wall_s is None or not time.is_whole:
        return Bill(None, None, price.currency)
    return Bill(price.energy_kwh(time.wall_s), price.money(time.wall_s), price.currency)


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
