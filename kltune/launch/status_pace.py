"""Where a study stands in; out: how fast it goes, when it ends, and whether it hangs. Arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Final

from kltune.launch.status_facts import Standing, TrialStand

QUIET_S: Final = 60.0
"""Without a new row for this long, and `QUIET_ROWS` times as long as a row takes, it may hang."""
QUIET_ROWS: Final = 30.0
QUIET_UNKNOWN_S: Final = 600.0
"""The same while no pace is known: the model loads, a proxy is learned, the first rollout runs."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How the running sweep goes on; None: can't be told yet."""

    steps_per_s: float | None
    """Trial-steps per second over all slots, since the first trial of this session."""
    left_s: float | None
    """Seconds until the trials are done, at this pace; none before a trial's worth of steps is known, and
    where nothing is left."""
    wall_left_s: float | None
    """Seconds until budget.wall ends the session; none without such a limit."""
    quiet_s: float | None
    """Seconds since the latest row, or since the sweep began where there is none in it."""
    is_quiet: bool
    """Whether that is far longer than a row takes."""


def pace_of(standing: Standing) -> Pace | None:
    """The pace of a study that a kltune is at work in; None for any other."""
    since, spec = standing.holder.since, standing.spec
    if not standing.is_running or since is None:
        return None
    worked = sum(trial.worked for trial in standing.trials)
    elapsed = standing.now - since
    # What came before the first trial (the model loads, a proxy is learned) is no pace.
    begun = min(
        (trial.began for trial in standing.trials if trial.began is not None), default=since
    )
    trained = standing.now - begun
    rate = worked / trained if worked > 0 and trained > 0 else None
    last = max(since, standing.last or since)
    quiet = max(0.0, standing.now - last)
    patience = QUIET_UNKNOWN_S if rate is None else max(QUIET_S, QUIET_ROWS / rate)
    wall = None if spec is None else spec.budget.wall
    return Pace(
        steps_per_s=rate,
        left_s=_left(standing, worked, rate),
        wall_left_s=None if wall is None else max(0.0, wall - elapsed),
        quiet_s=quiet,
        is_quiet=quiet > patience,
    )


def _left(standing: Standing, worked: float, rate: float | None) -> float | None:
    if rate is None or standing.spec is None:
        return None
    has_ended = any(trial.worked > 0 and _ran(trial) for trial in standing.trials)
    if not has_ended and worked < standing.spec.trainer.steps:
        return None
    return _steps_left(standing) / rate or None


def _steps_left(standing: Standing) -> float:
    """Trial-steps until the budget is used: trials to come are as long as ended ones were on average."""
    assert standing.spec is not None, "steps were done, so the spec is there"
    full = standing.spec.trainer.steps
    ended = [trial.step for trial in standing.trials if _ran(trial)]
    usual = fmean(ended) if ended else float(full)
    begun = [t for t in standing.trials if t.ending is None or t.ending["reason"] == "interrupted"]
    to_come = max(0, standing.spec.budget.trials - standing.num_counted - len(begun))
    return to_come * usual + sum(max(usual, trial.step + 1.0) - trial.step for trial in begun)


def _ran(trial: TrialStand) -> bool:
    """Whether it ended by itself or by a rule, so that its length says something of others'."""
    return trial.ending is not None and trial.ending["state"] in ("complete", "pruned")
