"""A study without a trial to recommend in, why there is none and what to change out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.trial import KLUnit
from kltune.trial.limits import floor_of
from kltune.trial.outcome import StopReason, TrialState
from kltune.trial.words import count_words, limit_words


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why no trial can be recommended, and what to change."""

    reason: str
    advice: tuple[str, ...]
    is_final: bool
    """False while trials are still to come."""


def no_answer(study: StudyRows) -> NoAnswer:
    """Say why, by what became of the trials."""
    ended = [t for t in study.trials if t.outcome is not None]
    if not ended:
        return _too_early(study)
    complete = study.of_state(TrialState.COMPLETE)
    is_final = len(study.trials) >= study.spec.budget.trials and len(ended) == len(study.trials)
    if complete:
        return NoAnswer(
            _infeasible_words(study, complete),
            _limit_advice(study, complete),
            is_final,
        )
    failed = study.of_state(TrialState.FAILED)
    if failed:
        return NoAnswer(
            f"No complete trial: {len(failed)} of {count_words(len(study.trials), 'trial')} failed.",
            (f"First failure, trial {failed[0].number}: {failed[0].detail}",),
            is_final,
        )
    interrupted = study.of_state(TrialState.INTERRUPTED)
    if interrupted:
        was = "was" if len(interrupted) == 1 else "were"
        return NoAnswer(
            f"No complete trial: {len(interrupted)} of {count_words(len(study.trials), 'trial')} {was} interrupted.",
            ("Run the same kltune sweep again: they go on from their checkpoints.",),
            is_final=False,
        )
    return NoAnswer(
        f"No complete trial: all {len(ended)} that ended were pruned against their peers.",
        ("Raise pruning.warmup or pruning.peers, or set pruning: {enabled: false}.",),
        is_final,
    )


def _too_early(study: StudyRows) -> NoAnswer:
    """While nothing has ended: what is due where a sweep is at work, else how to go on."""
    started = len(study.trials)
    reason = (
        f"No trial has ended yet ({started} started)." if started else "No trial has started yet."
    )
    again = "Run the same kltune sweep again to go on."
    if study.is_running:
        steps = study.spec.trainer.steps
        far = max((t.steps_run for t in study.trials), default=0)
        reason += " The sweep is running."
        again = f"The first result comes when a trial ends, after {steps} steps at the latest; the furthest is at step {far}."
    elif study.is_running is None:
        again = f"If no sweep is at work in this folder: {again[0].lower()}{again[1:]}"
    return NoAnswer(reason, (again,), is_final=False)


def _is_judged(row: TrialRow) -> bool:
    """Whether it has an evaluation after step 0 that is finite."""
    return any(c.step > 0 and math.isfinite(c.gold + c.kl_token) for c in row.checkpoints)


def _infeasible_words(study: StudyRows, complete: Sequence[TrialRow]) -> str:
    """How the complete trials ended, and whether any of them was ever judged."""
    endings = Counter(
        "diverged" if t.reason is StopReason.DIVERGED else _ending(t) for t in complete
    )
    listed = ", ".join(f"{count} {words}" for words, count in endings.most_common())
    of = count_words(len(complete), "complete trial")
    if not any(_is_judged(t) for t in complete):
        if len(endings) == 1:
            who = (
                "the one trial that ended"
                if len(complete) == 1
                else f"all {len(complete)} trials that ended"
            )
            verb = "was " if len(complete) == 1 else "were "
            verb = "" if next(iter(endings)) == "diverged" else verb
            return f"No feasible trial: {who} {verb}{next(iter(endings))} before an evaluation after step 0."
        return f"No feasible trial: of {of} none reached an evaluation after step 0 ({listed})."
    where = "checkpoint after step 0 that respects"
    return f"No feasible trial: none of {of} ({listed}) has a {where} {limit_words(study.spec.objective)}."


def _ending(row: TrialRow) -> str:
    if row.reason is None or row.reason is StopReason.DONE:
        return "ran all steps"
    return f"ended by the guard {row.reason.value}"


def _unjudged_advice(complete: Sequence[TrialRow]) -> str:
    if all(t.reason is StopReason.DIVERGED for t in complete):
        return "All complete trials diverged before their first evaluation: lower trainer.learning_rate."
    return "Guards ended all complete trials before their first evaluation: see what they said, or lower evaluate.every."


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
        return (_unjudged_advice(complete),)
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
