"""A study, its answer and what is known beside it in, the go / no-go out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kltune.confirm.result import ConfirmResult
from kltune.metrics.rows import Row
from kltune.report.recommend import Answer, NoAnswer, Recommendation
from kltune.report.rows import StudyRows
from kltune.transfer.result import TransferResult
from kltune.trial.words import both_units, setting_long
from kltune.validate.distance import outlier_line, smooth_line
from kltune.validate.followup import confirmed_line, is_of, transfer_line, untested
from kltune.validate.result import Line, Validation
from kltune.validate.reward import Readings, gain_line, parted_line, repeat_line, score_kl_line
from kltune.validate.search import baselines_line, controller_line, trials_line
from kltune.validate.thresholds import FEWEST_SAMPLES


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a validation looks at beside the rows of the report."""

    steps: Sequence[Row]
    """Of the recommended trial."""
    samples: Sequence[Row]
    """All kept completions of the recommended trial."""
    gold: Readings | str
    """Gold read again; or why it was not."""
    confirmed: ConfirmResult | None
    transfers: Sequence[TransferResult]
    """Results of ``kltune transfer`` that name the study, oldest first."""


def validate(study: StudyRows, answer: Answer, evidence: Evidence) -> Validation:
    """Judge a study; with no setting to recommend there is one line, and it fails."""
    left_out = untested(study, evidence.confirmed, evidence.transfers)
    lines = [trials_line(study, answer)]
    if isinstance(answer, NoAnswer):
        return Validation(study.spec.name, "", tuple(lines), left_out)
    lines += _of_trial(study, answer, evidence)
    lines += [
        controller_line(study, answer),
        baselines_line(answer, is_confirmed=evidence.confirmed is not None),
        confirmed_line(answer, evidence.confirmed),
        transfer_line(evidence.transfers),
    ]
    return Validation(study.spec.name, _setting(study, answer), tuple(lines), left_out)


def _of_trial(study: StudyRows, answer: Recommendation, evidence: Evidence) -> list[Line]:
    row, unit = answer.best, study.spec.kl_unit
    stop = (answer.plateau.first_step, answer.plateau.last_step)
    steps = [step for step in evidence.steps if int(step["step"]) <= stop[1]]
    count = len(steps)
    kl = row.curve.held(unit)[:count]
    samples = _around(evidence.samples, stop)
    found = evidence.confirmed
    confirmed = found if found is not None and is_of(found, answer) else None
    return [
        smooth_line(row.curve.step[:count], kl, unit),
        outlier_line(steps, samples),
        score_kl_line(samples),
        gain_line(study, row, confirmed),
        parted_line(row, stop),
        repeat_line(evidence.gold),
    ]


def _around(samples: Sequence[Row], stop: tuple[int, int]) -> list[Row]:
    """Completions of the stop's evaluations; of the nearest others too where these are too few."""
    steps = sorted({int(s["step"]) for s in samples if int(s["step"]) > 0})
    steps.sort(key=lambda step: max(stop[0] - step, step - stop[1], 0))
    taken: list[Row] = []
    for step in steps:
        is_inside = stop[0] <= step <= stop[1]
        if not is_inside and len(taken) >= 2 * FEWEST_SAMPLES:
            break
        taken += [s for s in samples if int(s["step"]) == step]
    return taken


def _setting(study: StudyRows, answer: Recommendation) -> str:
    spec, row = study.spec, answer.best
    text = f"Trial {row.number}: {setting_long(row.setting, spec.beta_unit, spec.kl_unit, spec.trainer.credit)}"
    peak, stop = row.peak, answer.plateau
    when = (
        f"step {stop.first_step}"
        if stop.first_step == stop.last_step
        else f"between step {stop.first_step} and {stop.last_step}"
    )
    kl = (
        ""
        if peak is None
        else f" (KL {both_units(peak.kl_token, peak.kl_seq)} at its peak, step {peak.step})"
    )
    return (
        f"{text}. Stop at {when}{kl}." if when.startswith("step") else f"{text}. Stop {when}{kl}."
    )
