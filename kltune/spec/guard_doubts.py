"""A spec in; out: which guards can't fire within a trial's steps. Arithmetic alone."""

from __future__ import annotations

from collections.abc import Mapping

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
    found = {
        name: need for name, need in unmet_needs(spec).items() if not _is_kl_by_step(spec, name)
    }
    if not found:
        return []
    needs = needs_words(found)
    steps, every = spec.trainer.steps, spec.evaluate.every
    what = f"{steps} steps with an evaluation every {every} are too few for these to fire: {needs}"
    return [Problem("guards", what)]


def unmet_needs(spec: StudySpec) -> dict[str, str]:
    """Guards that are on and can't fire within a trial's steps, by field under ``guards``, each with what it would need."""
    names = (*_BY_STEP, *_WINDOWS, "gold_drop", "kl")
    return {name: need for name in names if (need := _unmet_need(spec, name))}


def needs_words(needs: Mapping[str, str]) -> str:
    """The guards' names, those of the same need together."""
    names_by_need: dict[str, list[str]] = {}
    for name, need in needs.items():
        names_by_need.setdefault(need, []).append(name)
    return "; ".join(f"{', '.join(names)} ({need})" for need, names in names_by_need.items())


def evaluated_steps(spec: StudySpec) -> list[int]:
    """Steps after the start at which a trial that runs its course is evaluated."""
    steps, every = spec.trainer.steps, spec.evaluate.every
    return sorted({*range(every, steps + 1, every), steps})


def _unmet_need(spec: StudySpec, name: str) -> str:
    """What the guard needs to fire at all, where a trial does not have it."""
    kl = spec.kl_guard
    guard: GuardSpec | None = kl if name == "kl" else getattr(spec.guards, name)
    if guard is None or guard.action == "off":
        return ""
    if _is_kl_by_step(spec, name):
        is_met = guard.patience < spec.trainer.steps
        return "" if is_met else f"more than {_count(guard.patience, 'step')}"
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


def _is_kl_by_step(spec: StudySpec, name: str) -> bool:
    return name == "kl" and spec.kl_guard is not None and spec.kl_guard.over == "steps"


def _count(amount: int, what: str) -> str:
    return f"{amount} {what}{'s' * (amount != 1)}"
