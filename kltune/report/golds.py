"""Rows and the answer in, how the golds beside the objective's fared out: at the stop, and as Pareto sets.

Every evaluation of a trial has the same prompts and, of one seed, the same draws, so a checkpoint is
held against step 0 prompt by prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from kltune.report.compare import is_within
from kltune.report.recommend import Answer, Recommendation
from kltune.report.rows import Checkpoint, StudyRows, TrialRow
from kltune.spec.objective import GoldLimit
from kltune.statistics.pareto import non_dominated
from kltune.trial.limits import floor_of
from kltune.trial.outcome import TrialState
from kltune.trial.words import number, score

CONFIDENCE = 0.95
OBJECTIVE = "gold"
"""How the objective's own gold is called beside the named ones."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over prompts with its 95 % interval, Student t."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class GoldAtStop:
    """One gold at the recommended checkpoint, in its own unit."""

    name: str
    start: float
    """At step 0."""
    start_se: float
    mean: float
    se: float
    change: Interval | None
    """Since step 0, prompts paired; none where there are no prompts to pair."""
    limit: GoldLimit | None
    floor: float | None
    """The lowest mean that is allowed; none without a limit."""
    margin: Interval | None
    """How far the mean is above the floor; none without a limit."""

    @property
    def is_respected(self) -> bool | None:
        """Whether the limit is; none where there is none."""
        return None if self.margin is None else self.margin.mean >= 0

    @property
    def is_told(self) -> bool | None:
        """Whether the prompts can tell this from the limit; none where there is none."""
        return None if self.margin is None else self.margin.low > 0 or self.margin.high < 0


@dataclass(frozen=True, slots=True)
class Spot:
    """A checkpoint as a point of the objective's gold and another one."""

    row: TrialRow
    checkpoint: Checkpoint
    name: str
    """Of the other gold."""

    @property
    def place(self) -> tuple[float, float]:
        """The objective's gold and the other."""
        return self.checkpoint.gold, self.checkpoint.others[self.name].mean


@dataclass(frozen=True, slots=True)
class Front:
    """All checkpoints of a study by two golds."""

    name: str
    spots: tuple[Spot, ...]
    """Within the KL limit, after step 0."""
    best: tuple[Spot, ...]
    """Those of them that no other one beats in both golds; highest objective gold first."""
    outside: tuple[Spot, ...]
    """Beyond the KL limit: they can't be chosen, whatever their golds."""
    start: Checkpoint | None
    """Step 0, the same for every trial of a seed."""
    floor: float | None
    """The lowest mean of the other gold that is allowed; none without a limit."""


def gold_names(study: StudyRows) -> tuple[str, ...]:
    """The golds beside the objective's that were recorded, in the order of the record."""
    names = (name for row in study.trials for c in row.checkpoints for name in c.others)
    return tuple(dict.fromkeys(names))


def golds_at_stop(study: StudyRows, found: Recommendation) -> tuple[GoldAtStop, ...]:
    """Every gold at the recommended checkpoint, the objective's first."""
    start, peak = found.best.start, found.best.peak
    if start is None or peak is None:
        return ()
    objective = _at_stop(
        OBJECTIVE,
        (start.gold, start.gold_se, start.gold_by_prompt),
        (peak.gold, peak.gold_se, peak.gold_by_prompt),
        None,
    )
    others = (
        _at_stop(
            name,
            (start.others[name].mean, start.others[name].se, start.others[name].by_prompt),
            (other.mean, other.se, other.by_prompt),
            study.spec.objective.gold_limits.get(name),
        )
        for name, other in peak.others.items()
        if name in start.others
    )
    return (objective, *others)


def other_golds_words(study: StudyRows, found: Recommendation) -> str:
    """What became of the golds beside the objective's, on one line; empty where there are none."""
    return "; ".join(
        f"{gold.name} {score(gold.mean, gold.se)} there, {score(gold.start, gold.start_se)} before training: "
        f"{limit_verdict(gold)}"
        for gold in golds_at_stop(study, found)[1:]
    )


def limit_verdict(gold: GoldAtStop) -> str:
    """Whether a limit is respected, and whether the prompts can tell."""
    if gold.limit is None or gold.is_respected is None:
        return "the objective" if gold.name == OBJECTIVE else "no limit"
    verdict = "respected" if gold.is_respected else "broken"
    doubt = "" if gold.is_told else ", but the prompts can't tell it from the limit"
    return f"{verdict} ({_limit_short(gold.limit)}){doubt}"


def _limit_short(limit: GoldLimit) -> str:
    if limit.max_drop is not None:
        return f"at most {number(limit.max_drop)} below step 0"
    return f"at least {number(limit.min)}"


def front_of(study: StudyRows, name: str) -> Front:
    """The Pareto set of the objective's gold and the gold ``name``, over every trial's checkpoints."""
    limit, unit = study.spec.objective.kl_limit, study.spec.kl_unit
    within: list[Spot] = []
    outside: list[Spot] = []
    for row in study.trials:
        for checkpoint in row.checkpoints:
            if checkpoint.step == 0 or name not in checkpoint.others:
                continue
            spot = Spot(row, checkpoint, name)
            is_allowed = limit is None or checkpoint.kl(unit) <= limit
            if all(map(math.isfinite, spot.place)):
                (within if is_allowed else outside).append(spot)
    marked = non_dominated(np.array([s.place for s in within], dtype=float).reshape(-1, 2))
    best = sorted(
        (spot for spot, is_best in zip(within, marked, strict=True) if is_best),
        key=lambda s: (-s.place[0], -s.place[1], s.row.number, s.checkpoint.step),
    )
    starts = (row.start for row in study.trials)
    start = next((c for c in starts if c is not None and name in c.others), None)
    given = study.spec.objective.gold_limits.get(name)
    floor = None
    if given is not None and start is not None:
        floor = floor_of(given, start.others[name].by_prompt)
    return Front(name, tuple(within), tuple(best), tuple(outside), start, floor)


def passed_over(study: StudyRows, found: Recommendation) -> Spot | None:
    """The checkpoint of a complete trial that gold and KL alone would have chosen, but a gold's limit forbids.

    None where nothing forbidden is above the recommended peak.
    """
    objective, unit = study.spec.objective, study.spec.kl_unit
    peak, names = found.best.peak, list(objective.gold_limits)
    if peak is None or not names:
        return None
    limit = math.inf if objective.kl_limit is None else objective.kl_limit
    forbidden = [
        Spot(row, c, names[0])
        for row in study.of_state(TrialState.COMPLETE)
        for c in row.checkpoints
        if c.step > 0
        and c.kl(unit) <= limit
        and c.gold > peak.gold
        and names[0] in c.others
        and not is_within(row, c, objective, unit)
    ]
    return max(forbidden, key=lambda spot: spot.checkpoint.gold, default=None)


def golds_facts(study: StudyRows, answer: Answer) -> dict[str, Any]:
    """The same as plain data for report.json; empty for a study with one gold."""
    names = gold_names(study)
    if not names:
        return {}
    found = answer if isinstance(answer, Recommendation) else None
    at_stop = {} if found is None else {g.name: _facts(g) for g in golds_at_stop(study, found)}
    fronts = {name: [_spot_facts(s) for s in front_of(study, name).best] for name in names}
    over = None if found is None else passed_over(study, found)
    limits = {name: limit.model_dump() for name, limit in study.spec.objective.also.items()}
    return {
        "at_stop": at_stop,
        "limits": limits,
        "pareto": fronts,
        "passed_over": None if over is None else _spot_facts(over),
    }


def _facts(gold: GoldAtStop) -> dict[str, Any]:
    return {
        "start": gold.start,
        "start_se": gold.start_se,
        "mean": gold.mean,
        "se": gold.se,
        "change": _interval_facts(gold.change),
        "floor": gold.floor,
        "margin": _interval_facts(gold.margin),
        "respected": gold.is_respected,
        "told_from_limit": gold.is_told,
    }


def _interval_facts(interval: Interval | None) -> dict[str, float] | None:
    if interval is None:
        return None
    return {"mean": interval.mean, "low": interval.low, "high": interval.high, "confidence": 0.95}


def _spot_facts(spot: Spot) -> dict[str, Any]:
    point = spot.checkpoint
    return {
        "trial": spot.row.number,
        "step": point.step,
        "gold": point.gold,
        "gold_se": point.gold_se,
        "others": {name: other.mean for name, other in point.others.items()},
        "kl_token": point.kl_token,
        "kl_seq": point.kl_seq,
    }


Scores = tuple[float, float, Sequence[float]]
"""Mean, standard error, by prompt."""


def _at_stop(name: str, start: Scores, stop: Scores, limit: GoldLimit | None) -> GoldAtStop:
    change = None
    if len(start[2]) == len(stop[2]):
        change = _interval(np.subtract(stop[2], start[2]), 0.0)
    floor = None if limit is None else floor_of(limit, start[2])
    margin = None
    if limit is not None and floor is not None:
        # A floor that hangs on step 0 moves with its noise: the prompts are paired there.
        paired = np.asarray(stop[2], dtype=float)
        if limit.max_drop is not None and change is not None:
            margin = _interval(np.subtract(stop[2], start[2]), -limit.max_drop)
        else:
            margin = _interval(paired, floor)
    return GoldAtStop(name, start[0], start[1], stop[0], stop[1], change, limit, floor, margin)


def _interval(values_E: np.ndarray, zero: float) -> Interval | None:
    """Of the mean over prompts above ``zero``; none where there is no prompt."""
    if not len(values_E):
        return None
    mean = float(values_E.mean()) - zero
    if len(values_E) < 2:
        return Interval(mean, -math.inf, math.inf)
    se = float(values_E.std(ddof=1)) / math.sqrt(len(values_E))
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(values_E) - 1)) * se
    return Interval(mean, mean - half, mean + half)
