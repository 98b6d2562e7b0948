"""A study's trials in; their over-optimisation laws, and whether beta can be told from them, out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from kltune.report.peaks import trial_peak
from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.trial import ControllerKind
from kltune.statistics.frontier import Frontier, compare_frontiers
from kltune.statistics.law import LawFit, LawForm, LawPoints, LawVerdict, fit_law, law_points
from kltune.statistics.law_pooled import Gap, fit_pooled_law, largest_gap
from kltune.statistics.run_noise import usual_run_noise
from kltune.statistics.settling import SETTLED_WITHIN, Settling, Trend, settling
from kltune.trial.outcome import StopReason

_FORM: Final = LawForm.RL


class BetaVerdict(StrEnum):
    """Whether a trial's beta set the KL at which it is recommended to stop."""

    TOLD = "told"
    UNTOLD = "can't be told"


@dataclass(frozen=True, slots=True)
class TrialLaw:
    """One trial's law and whether its KL settled."""

    row: TrialRow
    points: LawPoints
    fit: LawFit
    settling: Settling
    """Of KL to the start, nats per sequence, over the training steps."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A KL to stop at, in nats per sequence."""

    kl: float
    low: float
    high: float
    source: str
    """``law`` or ``peak``: the pooled law's peak, or the tied steps of the recommended trial."""


@dataclass(frozen=True, slots=True)
class BetaFinding:
    """What can be said of the recommended trial's beta."""

    verdict: BetaVerdict
    law: TrialLaw
    kl_stop: float
    """Nats per sequence where the trial is recommended to stop."""
    is_at_level: bool
    """Whether that is within a factor of 2 of where its KL settled."""


@dataclass(frozen=True, slots=True)
class LawFindings:
    """All that the law says of a study."""

    trials: tuple[TrialLaw, ...]
    """Those with an evaluation at step 0 and after it."""
    pooled: LawFit
    gap: Gap | None
    """Where gold is furthest off the pooled law."""
    frontier: Frontier
    beta: BetaFinding | None
    """None without a recommended trial."""
    budget: Budget | None


def find_laws(study: StudyRows, best: TrialRow | None) -> LawFindings:
    """Fit each trial and all together; judge the recommended trial's beta."""
    pairs = [(row, _points(row)) for row in study.trials]
    rows = [(row, points) for row, points in pairs if len(points.d_P)]
    run = usual_run_noise([points for _, points in rows], _FORM)
    laws = tuple(
        TrialLaw(row, points, fit_law(points, _FORM, run), settling(np.array(row.curve.kl_seq)))
        for row, points in rows
    )
    own = next((law for law in laws if best is not None and law.row.number == best.number), None)
    all_points = [points for _, points in rows]
    pooled = fit_pooled_law(all_points, _FORM)
    return LawFindings(
        trials=laws,
        pooled=pooled,
        gap=largest_gap(all_points, pooled),
        frontier=compare_frontiers(all_points, [row.setting.beta for row, _ in rows]),
        beta=None if own is None else _judge_beta(own),
        budget=_budget(study, pooled, best),
    )


def _points(row: TrialRow) -> LawPoints:
    """Evaluations on the prompts of step 0, without those after a run broke down to nothing finite."""
    start = row.start
    if start is None or not start.gold_by_prompt:
        return LawPoints(np.empty(0), np.empty((0, 0)))
    kept = [c for c in row.checkpoints if len(c.gold_by_prompt) == len(start.gold_by_prompt)]
    return law_points(
        np.array([c.kl_seq for c in kept]), np.array([c.gold_by_prompt for c in kept])
    )


def _judge_beta(law: TrialLaw) -> BetaFinding:
    """Beta is told where KL had settled and the trial is stopped at about the KL where it did."""
    kl_stop = math.nan if law.row.peak is None else law.row.peak.kl_seq
    level = law.settling.level
    is_at_level = level / SETTLED_WITHIN <= kl_stop <= level * SETTLED_WITHIN
    is_one = law.row.setting.controller is ControllerKind.FIXED
    is_settled = law.settling.trend is Trend.SETTLED and is_at_level
    is_told = is_one and is_settled and not _is_cut_short(law.row)
    verdict = BetaVerdict.TOLD if is_told else BetaVerdict.UNTOLD
    return BetaFinding(verdict, law, kl_stop, is_at_level)


def _is_cut_short(row: TrialRow) -> bool:
    """Ended for what its KL did: it had not come to rest, whatever the steps before look like."""
    return row.reason in (
        StopReason.KL_LIMIT,
        StopReason.KL_JUMP,
        StopReason.PSEUDO_EXPLOSION,
        StopReason.LOCAL_KL,
        StopReason.DIVERGED,
    )


def _budget(study: StudyRows, pooled: LawFit, best: TrialRow | None) -> Budget | None:
    if pooled.verdict is LawVerdict.IDENTIFIED and pooled.kl_peak is not None:
        return Budget(pooled.kl_peak.value, pooled.kl_peak.low, pooled.kl_peak.high, "law")
    found = None if best is None else trial_peak(study, best)
    if found is None:
        return None
    tied = [c.kl_seq for c in found.row.checkpoints if c.step in found.peak.tied_steps]
    return Budget(found.checkpoint.kl_seq, min(tied), max(tied), "peak")
