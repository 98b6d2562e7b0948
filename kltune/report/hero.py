"""A chosen setting in, the first screen out: what to type, in few words, and the numbers that it rests on."""

from __future__ import annotations

from kltune.report.choice import Choice, is_judged_by_peak
from kltune.report.controller_rules import controller_short
from kltune.report.document import Hero
from kltune.report.guards import guard_end_short
from kltune.report.held import held_words
from kltune.report.hero_tiles import tiles
from kltune.report.native import typed_words
from kltune.report.provenance import export_command
from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.trial import ControllerKind
from kltune.trial.words import beta_unit_words, number

Line = tuple[str, str]


def hero(study: StudyRows, choice: Choice) -> Hero:
    """What to type, what it gives, and the command that writes it for another trainer."""
    command = export_command(study, choice.row, is_recommended=not choice.is_changed)
    return Hero(type_in(study, choice), tiles(study, choice), command)


def type_in(study: StudyRows, choice: Choice) -> tuple[Line, ...]:
    """At most six short lines; the details have the formulas."""
    row, spec = choice.row, study.spec
    setting, penalty = row.setting, row.setting.penalty
    stop = ("Stop", _stop_words(study, choice))
    rate = ("Learning rate", _rate_words(study, row))
    if setting.beta == 0 or penalty is None:
        return (("KL penalty", "none: beta = 0"), stop, rate)
    when = _when(setting.controller)
    unit = beta_unit_words(spec.beta_unit, spec.trainer.credit, penalty)
    return (
        ("KL penalty", penalty.value),
        ("beta", f"{number(setting.beta)} {unit}{when}"),
        ("KL coefficient", typed_words(study, row, when)),
        ("Controller", _controller(study, row)),
        stop,
        rate,
    )


def _controller(study: StudyRows, row: TrialRow) -> str:
    """What to set, and what to do where there is none."""
    return "; ".join(
        part for part in (controller_short(study, row), held_words(study, row)) if part
    )


def _when(kind: ControllerKind) -> str:
    """Which beta of a run is meant."""
    if kind is ControllerKind.FIXED:
        return ""
    return " (times the schedule)" if kind is ControllerKind.SCHEDULE else " at the start"


def _stop_words(study: StudyRows, choice: Choice) -> str:
    total = study.spec.trainer.steps
    if not is_judged_by_peak(study):
        return f"after {choice.last_step} of {total} steps{guard_end_short(choice.row)}"
    if choice.first_step == choice.last_step:
        return f"at step {choice.first_step} of {total}"
    return f"between steps {choice.first_step} and {choice.last_step} of {total}"


def _rate_words(study: StudyRows, row: TrialRow) -> str:
    text, every = number(row.setting.learning_rate), study.spec.trainer.reference.every
    return (
        text if every is None else f"{text}; the reference follows the policy every {every} steps"
    )
