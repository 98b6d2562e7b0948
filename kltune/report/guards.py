"""A study in, what its guards said out: which fired, how often, when, and what that spared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from kltune.metrics.jsonl import read_json
from kltune.report.accounting import Cut
from kltune.report.reckon import account
from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.guard_doubts import unmet_needs
from kltune.spec.study import StudySpec
from kltune.trial.guard_words import FIELD_OF, STOPPED
from kltune.trial.outcome import StopReason


@dataclass(frozen=True, slots=True)
class Said:
    """What one guard said in a study."""

    guard: StopReason
    action: str
    """``stop``, ``warn`` or ``off``: by the spec in force now."""
    stopped: tuple[int, ...]
    """Numbers of the trials that it ended."""
    warned: tuple[int, ...]
    """Numbers of the trials that it warned of."""
    first_steps: tuple[int, ...]
    """Of each of these trials in turn, the step at which it was ended, or the symptom of a warning began."""
    spared_steps: int
    """Trial-steps planned and not run, since it ended trials."""
    spared_s: float | None
    """Worker seconds of these, at each trial's own mean step; None where one has none."""


@dataclass(frozen=True, slots=True)
class GuardFindings:
    """What all guards said."""

    said: tuple[Said, ...]
    """Those that fired, in the order of `STOPPED`."""
    silent: tuple[str, ...]
    """Fields under ``guards`` that were on, could have fired and never did."""
    could_not: Mapping[str, str]
    """Fields that were on and can't fire within a trial's steps: their silence says nothing; with what they would need."""
    off: tuple[str, ...]
    """Fields that were off."""
    unknown: bool
    """Whether the study is of a kltune that did not have all guards: silence then says nothing."""


def find_guards(study: StudyRows) -> GuardFindings:
    """Count over all trials, those that still run included."""
    cuts = {cut.reason: cut for cut in account(study).steps.cuts}
    said = tuple(one for r in STOPPED if (one := _said(study, r, cuts.get(r))) is not None)
    fired = {FIELD_OF.get(one.guard) for one in said}
    known = _known_fields(study)
    quiet = [f for f in dict.fromkeys(FIELD_OF.values()) if f not in fired and f in known]
    on = {name: action_of(study.spec, name) != "off" for name in quiet}
    needs = unmet_needs(study.spec)
    return GuardFindings(
        said=said,
        silent=tuple(name for name in quiet if on[name] and name not in needs),
        could_not={name: needs[name] for name in quiet if on[name] and name in needs},
        off=tuple(name for name in quiet if not on[name]),
        unknown=not known.issuperset(FIELD_OF.values()),
    )


def guard_data(study: StudyRows) -> dict[str, Any]:
    """The same as plain data for report.json."""
    found = find_guards(study)
    return {
        "fired": [{**asdict(one), "guard": one.guard.value} for one in found.said],
        "silent": list(found.silent),
        "could_not_fire": dict(found.could_not),
        "off": list(found.off),
    }


def action_of(spec: StudySpec, field: str) -> str:
    """What a guard does in force: ``stop``, ``warn`` or ``off``."""
    if field == "wall":
        return "off" if spec.guards.wall is None else "stop"
    if field == "kl":
        return "off" if spec.kl_guard is None else spec.kl_guard.action
    if field == "gold_drop":
        return spec.guards.gold_drop.acts(spec.objective.metric)
    return str(getattr(spec.guards, field).action)


def _said(study: StudyRows, reason: StopReason, cut: Cut | None) -> Said | None:
    stopped = [row for row in study.trials if row.reason is reason]
    warned = [(row, w) for row in study.trials for w in row.warnings if w.guard == reason.value]
    if not stopped and not warned:
        return None
    field = FIELD_OF.get(reason)
    return Said(
        guard=reason,
        action="stop" if field is None else action_of(study.spec, field),
        stopped=tuple(row.number for row in stopped),
        warned=tuple(row.number for row, _ in warned),
        first_steps=(*(row.steps_run for row in stopped), *(w.first_step for _, w in warned)),
        spared_steps=0 if cut is None else cut.steps,
        spared_s=0.0 if cut is None else cut.seconds,
    )


def _known_fields(study: StudyRows) -> frozenset[str]:
    """Guards of the kltune that wrote the study's spec."""
    resolved: Mapping[str, Any] = read_json(study.path / "resolved.json")
    guards: object = resolved.get("guards")
    return (
        frozenset(cast("Mapping[str, object]", guards))
        if isinstance(guards, Mapping)
        else frozenset()
    )


def guard_end(row: TrialRow) -> str:
    """How a guard ended a trial's training, and that it belongs to the setting; empty where none did."""
    if row.reason is None or row.reason not in STOPPED:
        return ""
    if row.reason is StopReason.DIVERGED:
        return f"its training diverged at step {row.steps_run}: stop before"
    return (
        f"its training was ended by the guard {row.reason.value} at step {row.steps_run}: nothing is known of "
        "later ones, so stop there at the latest"
    )


def guard_end_short(row: TrialRow) -> str:
    """The same in a few words, after the number of steps."""
    if row.reason is None or row.reason not in STOPPED:
        return ""
    if row.reason is StopReason.DIVERGED:
        return ", where it diverged"
    return f", where the guard {row.reason.value} ended it"
