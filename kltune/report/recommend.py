"""Rows in, the answer out: which setting, when to stop, how sure; or why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kltune.report.compare import Difference, Plateau, plateau, value_difference
from kltune.report.peaks import trial_peak
from kltune.report.ranking import Ranking, rank
from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.trial import KLUnit
from kltune.trial.limits import floor_of
from kltune.trial.outcome import TrialState
from kltune.trial.words import is_noise, limit_words


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
    """The others that may be the best as well, by number: no order is claimed among them."""
    plateau: Plateau
    """Its steps are those that can't be told from the best around the peak: the window to stop in."""
    runner_up: Versus | None
    """The nearest of those that are told apart from the best; none where none is."""
    baselines: tuple[Versus, ...]
    """Known recipes and the beta = 0 arm, whether they respect the limit or not."""
    ranking: Ranking


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

    Of the settings that may be the best (the first group of `Ranking`) and whose value is within one
    standard error of the highest one's peak, the one with more evaluations within one standard error
    of its own peak; then the higher value; then the lower number. The second condition keeps a wide
    interval from recommending a visibly worse value. Repeats on other seeds are no candidates.
    """
    candidates = sorted(
        (t for t in study.trials if t.is_candidate and not is_noise(t.origin)), key=_by_value
    )
    if not candidates:
        return _no_answer(study)
    objective, unit = study.spec.objective, study.spec.kl_unit
    ranking = rank(study)
    highest = candidates[0]
    group = ranking.groups[0] if ranking.group_of(highest) == 1 else (highest,)
    tied = tuple(row for row in group if row is not highest)
    widths = {t.number: plateau(t, objective, unit) for t in (highest, *tied)}
    close = [t for t in tied if _is_close(highest, t)]
    best = min((highest, *close), key=lambda t: (-_width(widths[t.number]), *_by_value(t)))
    stretch = _window(study, best, widths[best.number])
    numbers = {row.number for row in group}
    others = [t for t in candidates if t.number not in numbers]
    compared = [t for t in study.trials if is_baseline(t) and t.number != best.number]
    return Recommendation(
        best=best,
        highest=highest,
        tied=tied,
        plateau=stretch,
        runner_up=_versus(study, ranking, best, others[0]) if others else None,
        baselines=tuple(_versus(study, ranking, best, t) for t in compared),
        ranking=ranking,
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


def _window(study: StudyRows, best: TrialRow, stretch: Plateau | None) -> Plateau:
    """When to stop: the steps that can't be told from the best one, where that is known."""
    assert stretch is not None, "a feasible complete trial has a peak"
    found = trial_peak(study, best)
    if found is None:
        return stretch
    return replace(stretch, first_step=found.peak.first_step, last_step=found.peak.last_step)


def _width(stretch: Plateau | None) -> int:
    return 0 if stretch is None else stretch.width


def _versus(study: StudyRows, ranking: Ranking, best: TrialRow, other: TrialRow) -> Versus:
    """With the interval that holds for all candidates together; of the pair alone beside one that is none."""
    found = ranking.difference(best, other)
    if found is None:
        found = value_difference(best, other, study.spec.objective, study.spec.kl_unit)
    return Versus(other, found)


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
            f"step 0 that respects {limit_words(study.spec.objective)}.",
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
    of_golds = _gold_advice(study, complete)
    if limit is None and of_golds:
        return tuple(of_golds)
    if limit is None or not reached:
        return (
            "All complete trials diverged before their first evaluation: lower trainer.learning_rate.",
        )
    lowest, row, checkpoint = min(reached, key=lambda entry: entry[0])
    advice = [
        f"The lowest KL at an evaluation after step 0 was {lowest:.3g} {words} (trial {row.number}, step "
        f"{checkpoint.step}, beta {row.setting.beta:.3g}); the limit is {limit:.3g} {words}."
    ]
    if of_golds and lowest <= limit:
        return tuple(of_golds)  # more beta is no answer to what golds forbid within the KL limit
    if checkpoint.step == min(c.step for c in row.checkpoints if c.step > 0):
        advice.append(
            "It was passed before the first evaluation: lower evaluate.every or the learning rate "
            f"({row.setting.learning_rate:.3g} in that trial)."
        )
    advice += of_golds
    top = max(t.setting.beta for t in complete)
    advice.append(f"Move the range of search.beta up (largest beta tried: {top:.3g}).")
    advice.append("Or raise objective.kl_limit and guards.kl.limit if that much KL is acceptable.")
    return tuple(advice)


def _gold_advice(study: StudyRows, rows: tuple[TrialRow, ...]) -> list[str]:
    """How near each limited gold came to its floor, and what to change."""
    advice: list[str] = []
    for name, limit in study.spec.objective.gold_limits.items():
        reached = [
            (c.others[name].mean, row, c)
            for row in rows
            for c in row.checkpoints
            if c.step > 0 and name in c.others and math.isfinite(c.others[name].mean)
        ]
        start = next((r.start.others.get(name) for r in rows if r.start is not None), None)
        floor = floor_of(limit, None if start is None else start.by_prompt)
        if not reached or floor is None or start is None:
            continue
        highest, row, checkpoint = max(reached, key=lambda entry: entry[0])
        text = (
            f"{name}: {start.mean:.3g} at step 0, at most {highest:.3g} after it (trial {row.number}, step "
            f"{checkpoint.step}); the lowest allowed is {floor:.3g}."
        )
        if highest < floor:
            text += f" Lower it by objective.also.{name} if less of it is acceptable."
        advice.append(text)
    return advice
