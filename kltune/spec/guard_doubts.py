"""A spec in; out: which guards can't fire within a trial's steps. Arithmetic alone."""

from __future__ import annotations

from kltune.spec.guards import GuardSpec
from kltune.spec.problems import Problem
from kltune.spec.study import StudySpec

_BY_STEP = ("jump", "negative_kl")
_WINDOWS = {
    "stalled": 2,
    "pseudo_explosion": 2,
    "entropy": 2,
    "repetition": 2,
    "length": 2,
    "truncation": 2,
    "local_kl": 1,
    "proxy_spread": 1,
}
"""Windows of steps that a guard must have seen: the first and the last ones, or only these."""


def guard_doubts(spec: StudySpec) -> list[Problem]:
    """One doubt that names every guard which is on and would need a longer trial or more evaluations.

    A KL guard over steps has its own doubt in `kltune.spec.doubts`.
    """
    names_by_need: dict[str, list[str]] = {}
    for name in (*_BY_STEP, *_WINDOWS, "gold_drop", "kl"):
        if need := _unmet_need(spec, name):
            names_by_need.setdefault(need, []).append(name)
    if not names_by_need:
        return []
    needs = "; ".join(f"{', '.join(names)} ({need})" for need, names in names_by_need.items())
    steps, every = spec.trainer.steps, spec.evaluate.every
    what = f"{steps} steps with an evaluation every {every} are too few for these to fire: {needs}"
    return [Problem("guards", what)]


def evaluated_steps(spec: StudySpec) -> list[int]:
    """Steps after the start at which a trial that runs its course is evaluated."""
    steps, every = spec.trainer.steps, spec.evaluate.every
    return sorted({*range(every, steps + 1, every), steps})


def _unmet_need(spec: StudySpec, name: str) -> str:
    """What the guard needs to fire at all, where a trial does not have it."""
    kl = spec.kl_guard
    guard: GuardSpec | None = kl if name == "kl" else getattr(spec.guards, name)
    if guard is None or guard.action == "off" or (name == "kl" and kl and kl.over == "steps"):
        return ""
    if name in _BY_STEP:
        start = guard.warmup + (name == "jump")  # it jumps from something
        is_met = start + guard.patience <= spec.trainer.steps
        return "" if is_met else f"{_count(guard.patience, 'step')} after step {start}"
    evaluated = evaluated_steps(spec)
    start = guard.warmup
    if name in _WINDOWS:
        start = max(start, _WINDOWS[name] * int(getattr(guard, "window", 0)) - 1)
    elif name == "gold_drop":
        start = max(start, evaluated[0])  # the first checkpoint has none to drop from
    is_met = sum(step > start for step in evaluated) >= guard.patience
    return "" if is_met else f"{_count(guard.patience, 'evaluation')} after step {start}"


def _count(amount: int, what: str) -> str:
    return f"{amount} {what}{'s' * (amount != 1)}"
