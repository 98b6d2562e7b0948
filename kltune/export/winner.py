"""A study's rows in, its recommended setting (or another trial's) as a `Winner` out."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median

from kltune.confirm.result import ConfirmResult, Place
from kltune.errors import StudyError
from kltune.export.setting import Gold, Measured, Source, Stop, Texts, Winner
from kltune.report.choice import is_judged_by_peak, stop_point
from kltune.report.compare import plateau, value_interval
from kltune.report.confirm_blocks import confirmed_words, find_confirmation, is_of
from kltune.report.controller_blocks import judge, verdict_words
from kltune.report.controllers import Conduct
from kltune.report.guards import guard_end
from kltune.report.peaks import trial_peak
from kltune.report.recommend import Answer, Recommendation, recommend
from kltune.report.rows import Checkpoint, StudyRows, TrialRow
from kltune.spec.model import ModelSpec
from kltune.trial.outcome import StopReason, TrialState
from kltune.trial.words import score

_HELD = (Conduct.HOLDS, Conduct.TOO_SHORT)
"""Verdicts that warn of nothing."""

_SHORTEST_WINDOW = 5
"""Steps; else the last tenth of those up to the peak."""


def recommended(study: StudyRows) -> Winner | None:
    """What the study recommends; None where it recommends nothing."""
    answer = recommend(study)
    return _winner(study, answer.best, answer) if isinstance(answer, Recommendation) else None


def confirmed_instead(study: StudyRows) -> int | None:
    """The trial that fresh seeds and test prompts put above the recommended one; None where they don't."""
    result, _ = find_confirmation(study.path)
    if result is None or not is_of(result, recommend(study)):
        return None
    return result.arms[result.main.winner].number if result.main.verdict == "changes" else None


def compared(study: StudyRows, other: int, own: int) -> str:
    """Gold of one trial against another's on the same prompts and seeds: confirmed where both are, else the values."""
    result, _ = find_confirmation(study.path)
    if result is not None and is_of(result, recommend(study)):
        by_number = {result.arms[place.arm].number: place.gold for place in result.main.places}
        if other in by_number and own in by_number:
            return f"gold {score(by_number[other])} against {score(by_number[own])} on {_basis(result)}"
    values = {row.number: row.value for row in study.trials}
    return f"value {score(values.get(other))} against {score(values.get(own))} on the select prompts, one seed"


def of_trial(study: StudyRows, number: int) -> Winner:
    """The setting of one trial, recommended or not.

    Raises:
        StudyError: no such trial, or one without a usable checkpoint after step 0.
    """
    row = next((t for t in study.trials if t.number == number), None)
    if row is None:
        last = max((t.number for t in study.trials), default=None)
        has = "it has none yet" if last is None else f"its trials are 0 to {last}"
        raise StudyError(f"{study.path}: there is no trial {number} ({has})")
    if row.peak is None:
        raise StudyError(
            f"{study.path}: trial {number} ({row.state.value}) has no finite evaluation after step 0, so there is "
            "nothing to say of when to stop"
        )
    return _winner(study, row, recommend(study))


def _winner(study: StudyRows, row: TrialRow, answer: Answer) -> Winner:
    spec, peak = study.spec, row.peak
    assert peak is not None, "only trials with a peak come here"
    end = stop_point(study, row) or peak
    is_best = isinstance(answer, Recommendation) and answer.best.number == row.number
    result = _confirmed(study, answer) if is_best else None
    stop = _stop(study, row, end, answer)
    if result is not None:
        stop = _at_confirmed(stop, result)
    rivals = len(answer.tied) if isinstance(answer, Recommendation) and is_best else 0
    return Winner(
        source=Source(
            study=spec.name,
            trial=row.number,
            origin=row.origin,
            is_recommended=is_best,
            rivals=rivals,
            base=str(spec.model.base),
            lora_rank=spec.model.rank if spec.model.finetune == "lora" else None,
            doubt=_doubt(row),
        ),
        setting=row.setting,
        trainer=spec.trainer,
        control=spec.control,
        beta_unit=spec.beta_unit,
        kl_unit=spec.kl_unit,
        measured=_measured(study, row, end, stop),
        stop=stop,
        gold=_gold(study, row, peak, result),
        guards=spec.guards,
        kl_guard=spec.kl_guard,
        kl_limit=spec.objective.kl_limit,
        confirmation=_confirmation(study, answer) if is_best else "not confirmed",
        missed=_missed(study, row),
        text=_texts(spec.model),
    )


def _texts(model: ModelSpec) -> Texts:
    return Texts(model.system, model.thinking, model.answer_after, model.chat)


def _confirmed(study: StudyRows, answer: Answer) -> ConfirmResult | None:
    """The confirmation of the recommended setting, where it gives a gold."""
    result, _ = find_confirmation(study.path)
    if result is None or not is_of(result, answer) or _place_of(result, 0) is None:
        return None
    return result


def _at_confirmed(stop: Stop, result: ConfirmResult) -> Stop:
    """With the KL of the prompts and seeds that gold is of; the steps to stop at stay the search's."""
    facts = result.arms[0]
    if not (math.isfinite(facts.kl_token) and math.isfinite(facts.kl_seq)):
        return stop
    return replace(
        stop,
        peak_step=facts.stop,
        kl_token=facts.kl_token,
        kl_seq=facts.kl_seq,
        basis=f"on {_basis(result)}",
    )


def _missed(study: StudyRows, row: TrialRow) -> str:
    found = judge(study, row)
    if found is None or found.conduct in _HELD:
        return ""
    return verdict_words(study, row, found)


def _doubt(row: TrialRow) -> str:
    """Why a study would not recommend the trial, whatever its value."""
    if row.outcome is None:
        return "has no end on record: it runs still or was cut off, so its stop is that of a part of it"
    found: list[str] = []
    if row.state is not TrialState.COMPLETE or row.reason is StopReason.DIVERGED:
        detail = f" ({row.detail})" if row.detail else ""
        found.append(f"was not trained to its end: {row.reason}{detail}")
    if row.is_feasible is False:
        found.append("is infeasible: it broke a limit of the objective")
    return "; it ".join(found)


def _measured(study: StudyRows, row: TrialRow, end: Checkpoint, stop: Stop) -> Measured:
    curve, reference = row.curve, study.reference
    sigma = row.sigma_r or study.sigma_r
    window = _window(row, end)
    betas = [b for s, b in zip(curve.step, curve.beta, strict=True) if s in window]
    finite = [b for b in betas if math.isfinite(b)]
    target = row.setting.target_kl
    if target is None:
        target = next((t for t in curve.target if math.isfinite(t)), None)
    return Measured(
        sigma_r=sigma if sigma is not None and sigma > 0 else None,
        std_r=_number(reference.get("std_r")),
        mean_tokens=_mean_tokens(study, stop),
        target_kl=target,
        first_coefficient=next((c for c in curve.coefficient if math.isfinite(c)), None),
        final_beta=median(finite) if finite else None,
        window=(min(window), max(window)) if finite else None,
    )


def _window(row: TrialRow, peak: Checkpoint) -> frozenset[int]:
    """The last tenth of the steps up to the peak, at least five."""
    steps = [step for step in row.curve.step if step <= peak.step]
    return frozenset(steps[-max(_SHORTEST_WINDOW, len(steps) // 10) :])


def _mean_tokens(study: StudyRows, peak: Stop) -> float:
    """Of the evaluation at the stop: both its KLs are sums over the same tokens."""
    longest = float(study.spec.trainer.max_new_tokens)
    if peak.kl_token > 0 and peak.kl_seq > 0:
        return min(longest, peak.kl_seq / peak.kl_token)  # rounding must not pass the limit
    found = _number(study.reference.get("mean_tokens"))
    return longest if found is None else found


def _stop(study: StudyRows, row: TrialRow, end: Checkpoint, answer: Answer) -> Stop:
    """``end``: the evaluation at the stop."""
    if not is_judged_by_peak(study):
        first = last = row.steps_run  # judged by its end
    elif isinstance(answer, Recommendation) and answer.best.number == row.number:
        first, last = answer.plateau.first_step, answer.plateau.last_step
    else:
        found = trial_peak(study, row)
        held = plateau(row, study.spec.objective, study.spec.kl_unit)
        first = last = end.step
        if found is not None:
            first, last = found.peak.first_step, found.peak.last_step
        elif held is not None:
            first, last = held.first_step, held.last_step
    return Stop(
        first_step=first,
        last_step=last,
        peak_step=end.step,
        steps_run=row.steps_run,
        steps_planned=study.spec.trainer.steps,
        kl_token=end.kl_token,
        kl_seq=end.kl_seq,
        ended_by=guard_end(row),
    )


def _gold(study: StudyRows, row: TrialRow, peak: Checkpoint, result: ConfirmResult | None) -> Gold:
    """On fresh seeds and test prompts where this setting was confirmed, else on the select prompts."""
    if result is not None:
        return _confirmed_gold(result)
    start = None if row.start is None else row.start.gold
    metric = study.spec.objective.metric
    interval = value_interval(row, study.spec.objective, study.spec.kl_unit)
    noise = "" if interval is None else "; the interval holds the noise of prompts only"
    return Gold(
        value=peak.gold if row.value is None else row.value,
        low=None if interval is None else interval[0],
        high=None if interval is None else interval[1],
        start=start,
        basis=f"{metric} on the select prompts, one seed{noise}",
    )


def _confirmed_gold(result: ConfirmResult) -> Gold:
    place = _place_of(result, 0)
    assert place is not None, "asked before"
    start = next((p for p in result.main.places if result.arms[p.arm].role == "start"), None)
    return Gold(
        value=place.gold,
        low=place.low,
        high=place.high,
        start=None if start is None else start.gold,
        basis=_basis(result),
    )


def _place_of(result: ConfirmResult, arm: int) -> Place | None:
    return next((place for place in result.main.places if place.arm == arm), None)


def _basis(result: ConfirmResult) -> str:
    return f"{len(result.seeds)} fresh seeds, {result.num_prompts} test prompts"


def _confirmation(study: StudyRows, answer: Answer) -> str:
    words = confirmed_words(study, answer)
    return "not confirmed on fresh seeds: run kltune confirm" if words is None else words


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
