"""What a bank needs and what is free in; whether it fits out, as a line."""

from __future__ import annotations

from kltune.check import thresholds as limit
from kltune.check.result import Line
from kltune.grade import Grade
from kltune.trainer.soundness.facts import MemoryFacts

_MIB = 2**20


def memory_line(found: MemoryFacts) -> Line:
    """Whether adapters, moments and the activations of a step fit beside the base that is loaded already."""
    need = found.adapters + found.activations
    numbers = {
        "slots": float(found.slots),
        "estimate_bytes": float(found.estimate),
        "base_bytes": float(found.base),
        "adapter_bytes": float(found.adapters),
        "activation_bytes": float(found.activations),
        "step_estimate_bytes": float(found.step_estimate),
        "step_peak_bytes": None if found.step_peak is None else float(found.step_peak),
        "process_peak_bytes": None if found.process_peak is None else float(found.process_peak),
        "free_bytes": None if found.free is None else float(found.free),
    }
    at_once = f"{found.slots} trial{'s' * (found.slots > 1)} at once"
    shown = (
        f"{mebibytes(found.estimate)} for {at_once} (base {mebibytes(found.base)}, adapters and moments "
        f"{mebibytes(found.adapters)}, a step {mebibytes(found.activations)})"
    )
    if found.step_peak is not None:
        shown += (
            f"; measured, a step of one trial took {mebibytes(found.step_peak)} beyond what was held (reckoned "
            f"{mebibytes(found.step_estimate)})"
        )
    title = "the trials that run at once fit in memory"
    if found.free is None:
        return Line(
            "memory", title, Grade.PASS, f"{shown}; what is free can't be told.", "", numbers
        )
    shown += f"; free {mebibytes(found.free)}."
    grade = Grade.PASS
    if need > limit.MEMORY_WARN * found.free:
        # A step that does not fit is cut into smaller parts; weights that don't can't be.
        grade = Grade.FAIL if found.adapters > found.free else Grade.WARN
    remedy = (
        ""
        if grade is Grade.PASS
        else "Set budget.slots or trainer.micro_batch lower, or shorter completions."
    )
    return Line("memory", title, grade, shown, remedy, numbers)


def mebibytes(count: int) -> str:
    """Bytes for people."""
    gib = count / 2**30
    return f"{gib:.1f} GiB" if gib >= 1 else f"{count / _MIB:,.0f} MiB"
