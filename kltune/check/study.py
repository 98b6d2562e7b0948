"""A spec in; what its arithmetic says before anything loads out, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from kltune.check.result import Line
from kltune.grade import Grade
from kltune.spec.controller_doubts import controller_doubts
from kltune.spec.doubts import find_doubts
from kltune.spec.study import StudySpec
from kltune.spec.trial import ControllerKind


def spec_line(spec: StudySpec) -> Line:
    """Whether anything in the spec would run but is probably not meant; controllers have their own line."""
    title = "the spec says what is meant"
    of_controllers = {str(doubt) for doubt in controller_doubts(spec)}
    doubts = [doubt for doubt in find_doubts(spec) if doubt not in of_controllers]
    return _line("spec", title, doubts, "No setting, limit or guard of it is without effect.")


def controller_line(spec: StudySpec) -> Line:
    """Whether every controller of the search can move beta and need not swing."""
    title = "controllers can move beta, and hold KL still"
    doubts = [str(doubt) for doubt in controller_doubts(spec)]
    kinds = [ControllerKind(str(value)) for value in spec.search.controller.values()]
    moving = [kind.value for kind in kinds if kind is not ControllerKind.FIXED]
    fine = (
        f"By arithmetic {', '.join(moving)} can: neither inert nor bound to swing."
        if moving
        else "Beta stays fixed in every trial."
    )
    return _line("controller", title, doubts, fine)


def _line(name: str, title: str, doubts: Sequence[str], fine: str) -> Line:
    numbers = {"num_doubts": float(len(doubts))}
    if not doubts:
        return Line(name, title, Grade.PASS, fine, "", numbers)
    listed = (
        doubts[0] if len(doubts) == 1 else "; ".join(f"({i}) {d}" for i, d in enumerate(doubts, 1))
    )
    remedy = "Change the spec, or go on if that is meant."
    return Line(name, title, Grade.WARN, f"{listed}.", remedy, numbers)
