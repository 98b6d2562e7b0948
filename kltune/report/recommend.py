"""Rows in, the answer out: which setting, when to stop, how sure; or why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kltune.report.compare import Difference, Plateau, plateau, value_difference
from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.trial import KLUnit
from kltune.trial.outcome import TrialState


@dataclass(frozen=True, slots=True)
class Versus:
    """The recommended trial against another one."""

    row: TrialRow
    difference: Difference | None
    """Recommended minus other; none where prompts can't be paired."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One trial, chosen by a rule that the report states."""

    best: TrialRow
    highest: TrialRow
    """The trial with the highest told value; differs from best where a tie was broken."""
    tied: tuple[TrialRow, ...]
    """Other candidates whose value can't be told apart from the highest one's."""
    plateau: Plateau
    runner_up: Versus | None
    baselines: tuple[Versus, ...]
    """Known recipes and the beta = 0 arm, whether they respect the limit or not."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why no trial can be recommended, and what to change."""

    reason: str
    advice: tuple[str, ...]
    is_final: bool
    """False while trials are still to come."""


Answer = Recommendation | NoAnswer


def recommend(study: StudyRows) -> Answer:
    """Choose among feasible complete trials.

    The highest told value wins; among those that can't be told apart from it (95 % interval of
    the paired difference includes 0) and are within one standard error of its peak the one with
    more evaluations within one standard error of its own peak; then the higher value; then the
    lower number. The second condition keeps a wide interval from recommending a visibly worse value.
    """
    candidates = sorted((t for t in study.trials if t.is_candidate), key=_by_value)
    if not candidates:
        return _no_answer(study)
    objective, unit = study.spec.objective, study.spec.kl_unit
    highest = candidates[0]
    tied = tuple(
        other
        for other in candidates[1:]
        if (d := value_difference(highest, other, objective, unit)) is not None
        and not d.is_told_apart
    )
    widths = {t.number: plateau(t, objective, unit) for t in (highest, *tied)}
    close = [t for t in tied if _is_close(highest, t)]
    best = min((highest, *close), key=lambda t: (-_width(widths[t.number]), *_by_value(t)))
    stretch = widths[best.number]
    assert stretch is not None, "a feasible complete trial has a peak"
    others = [t for t in candidates if t.number != best.number]
    compared = [t for t in study.trials if is_baseline(t) and t.number != best.number]
    return Recommendation(
        best=best,
        highest=highest,
        tied=tied,
        plateau=stretch,
        runner_up=_versus(study, best, others[0]) if others else None,
        baselines=tuple(_versus(study, best, t) for t in compared),
    )


def is_baseline(row: TrialRow) -> bool:
    """Whether the setting was given (a known recipe or the beta = 0 arm) and not searched."""
    return row.origin == "zero" or row.origin.startswith("baseline")


def _by_value(row: TrialRow) -> tuple[float, int]:
    return (-(-math.inf if row.value is None else row.value), row.number)


def _is_close(highest: TrialRow, other: TrialRow) -> bool:
    """Whether a value is within one standard error of the highest trial's peak."""
    if highest.value is None or other.value is None or highest.peak is None:
        return False
    return highest.value - other.value <= highest.peak.gold_se


def _width(stretch: Plateau | None) -> int:
    return 0 if stretch is None else stretch.width


def _versus(study: StudyRows, best: TrialRow, other: TrialRow) -> Versus:
    return Versus(other, value_difference(best, other, study.spec.objective, study.spec.kl_unit))


def _no_answer(study: StudyRows) -> NoAnswer:
    ended = [t for t in study.trials if t.outcome is not None]
    if not ended:
        started = len(study.trials)
        reason = (
            f"No trial has ended yet ({started} started)."
            if started
            else "No trial has started yet."
        )
        return NoAnswer(reason, ("Run the same kltune sweep again to go on.",), is_final=False)
    complete = study.of_state(TrialState.COMPLETE)
    is_final = len(study.trials) >= study.spec.budget.trials and len(ended) == len(study.trials)
    if complete:
        return NoAnswer(
            f"No feasible trial: none of the {len(complete)} complete trials has a checkpoint after "
            "step 0 that respects the KL limit.",
            _limit_advice(study, complete),
            is_final,
        )
    failed = study.of_state(TrialState.FAILED)
    if failed:
        return NoAnswer(
            f"No complete trial: {len(failed)} of {len(study.trials)} failed.",
            (f"First failure, trial {failed[0].number}: {failed[0].detail}",),
            is_final,
        )
    interrupted = study.of_state(TrialState.INTERRUPTED)
    if interrupted:
        return NoAnswer(
            f"No complete trial: {len(interrupted)} of {len(study.trials)} were interrupted.",
            ("Run the same kltune sweep again: they go on from their checkpoints.",),
            is_final=False,
        )
    return NoAnswer(
        f"No complete trial: all {len(ended)} that ended were pruned against their peers.",
        ("Raise pruning.warmup or pruning.peers, or set pruning: {enabled: false}.",),
        is_final,
    )


def _limit_advice(study: StudyRows, complete: tuple[TrialRow, ...]) -> tuple[str, ...]:
    """What the numbers say about the way out: a larger beta, a smaller step, a finer look or the limit."""
    limit, unit = study.spec.objective.kl_limit, study.spec.kl_unit
    words = "nats/token" if unit is KLUnit.TOKEN else "nats/sequence"
    reached = [
        (c.kl(unit), t, c)
        for t in complete
        for c in t.checkpoints
        if c.step > 0 and math.isfinite(c.kl(unit))
    ]
    if limit is None or not reached:
        return (
            "All complete trials diverged before their first evaluation: lower trainer.learning_rate.",
        )
    lowest, row, checkpoint = min(reached, key=lambda entry: entry[0])
    advice = [
        f"The lowest KL at an evaluation after step 0 was {lowest:.3g} {words} (trial {row.number}, step "
        f"{checkpoint.step}, beta {row.setting.beta:.3g}); the limit is {limit:.3g} {words}."
    ]
    if checkpoint.step == min(c.step for c in row.checkpoints if c.step > 0):
        advice.append(
            "It was passed before the first evaluation: lower evaluate.every or the learning rate "
            f"({row.setting.learning_rate:.3g} in that trial)."
        )
    top = max(t.setting.beta for t in complete)
    advice.append(f"Move the range of search.beta up (largest beta tried: {top:.3g}).")
    advice.append("Or raise objective.kl_limit and guards.kl.limit if that much KL is acceptable.")
    return tuple(advice)
