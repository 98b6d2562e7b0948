"""A run whose log has a KL that could not be used in, a sign that says so and what to do out. Pure."""

from __future__ import annotations

from kltune.diagnose.result import Sign
from kltune.diagnose.runlog import RunLog
from kltune.grade import Grade


def unread_kl(run: RunLog) -> Sign | None:
    """A KL is in the log, in an unknown unit or not as numbers: not the same as none being logged."""
    if not run.unread_kl:
        return None
    steps = run.curve.steps
    span = (steps[0], steps[-1]) if steps else (0, 0)
    reasons = list(run.unread_kl.values())
    is_unit = any("--kl-unit" in why for why in reasons)
    name = "kl_unit_unknown" if is_unit else "kl_not_a_number"
    return Sign(name, Grade.WARN, *span, "; ".join(reasons))
