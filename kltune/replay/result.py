"""A replay as values: what was run, how it ended, how it compares; in words, and as one strict JSON object."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kltune.metrics.jsonl import SCHEMA
from kltune.replay.compare import Compared, Comparison, Likeness
from kltune.trial.words import number, score

MOST_DIFFERENCES = 8
"""Quantities that are named where the two part."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A step that was taken apart."""

    step: int
    files: tuple[Path, ...]
    line: str
    """``loss = ...``."""
    sums: int
    """Done again by hand."""
    wrong: tuple[str, ...]
    """Sums that did not agree within rounding."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One replay."""

    study: str
    trial: int
    setting: str
    """In words."""
    folder: Path
    steps_recorded: int
    steps_asked: int
    steps_run: int
    reason: str
    """Why it ended: a `StopReason`."""
    detail: str
    recorded_end: str
    """How the record ended, in its own words; empty where it has not."""
    comparison: Comparison
    surroundings: tuple[str, ...]
    """What differs between the record's machine and this one."""
    notes: tuple[str, ...]
    traced: Traced | None
    gold: tuple[float | None, float | None, float | None] | None
    """At the last evaluation of both: recorded, replayed, standard error of the recorded one."""
    seconds: float

    def verdict(self) -> str:
        """One sentence: whether it repeats the record."""
        comparison = self.comparison
        steps, evaluations = comparison.count("step"), comparison.count("evaluation")
        amount = f"{_count(steps, 'step')} and {_count(evaluations, 'evaluation')}"
        first = comparison.first
        match comparison.likeness:
            case Likeness.NOTHING:
                return (
                    "there is nothing to compare: the record holds none of the steps that were run"
                )
            case Likeness.SAME:
                return f"repeats the record to the last bit: {amount}"
            case Likeness.ROUNDING:
                assert first is not None
                return f"parts from the record at {first.place()}, at first by rounding alone ({_largest(first)})"
            case Likeness.DIFFERENT:
                assert first is not None
                return (
                    f"parts from the record at {first.place()} by more than rounding ({_largest(first)}): "
                    "something other than arithmetic has changed"
                )

    def extent(self) -> str:
        """How much of it is the same, and the largest difference anywhere; empty where all is."""
        compared = self.comparison.compared
        if self.comparison.likeness in (Likeness.SAME, Likeness.NOTHING):
            return ""
        same = sum(one.is_same for one in compared)
        worst = max(
            (one for one in compared if one.differences), key=lambda one: one.differences[0].share
        )
        name, share = worst.differences[0].name, worst.differences[0].share
        return (
            f"{same} of {_count(len(compared), 'step')} and evaluations are the same to the last bit; the largest "
            f"difference is {number(share, 2)} of {name} at {worst.place()}"
        )

    def consequence(self) -> str:
        """What the parting comes to by the end, in gold; empty where they never part."""
        if self.comparison.likeness in (Likeness.SAME, Likeness.NOTHING) or self.gold is None:
            return ""
        recorded, replayed, se = self.gold
        step = max(one.step for one in self.comparison.compared if one.kind == "evaluation")
        return f"gold after step {step}: {score(recorded, se)} in the record, {score(replayed)} now"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        comparison, traced = self.comparison, self.traced
        first = comparison.first
        return {
            "schema": SCHEMA,
            "study": self.study,
            "trial": self.trial,
            "setting": self.setting,
            "folder": self.folder,
            "likeness": comparison.likeness.value,
            "verdict": self.verdict(),
            "steps": {
                "recorded": self.steps_recorded,
                "asked": self.steps_asked,
                "run": self.steps_run,
                "compared": comparison.count("step"),
            },
            "evaluations_compared": comparison.count("evaluation"),
            "ended": {"reason": self.reason, "detail": self.detail, "recorded": self.recorded_end},
            "parts_at": None if first is None else _place(first),
            "by_step": [_brief(one) for one in comparison.compared],
            "only_recorded": list(comparison.only_recorded),
            "only_replayed": list(comparison.only_replayed),
            "gold": None
            if self.gold is None
            else dict(zip(("recorded", "replayed", "recorded_se"), self.gold, strict=True)),
            "surroundings": list(self.surroundings),
            "notes": list(self.notes),
            "trace": None
            if traced is None
            else {
                "step": traced.step,
                "files": list(traced.files),
                "line": traced.line,
                "sums": traced.sums,
                "wrong": list(traced.wrong),
            },
            "seconds": round(self.seconds, 2),
        }


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _largest(compared: Compared) -> str:
    worst = compared.differences[0]
    return (
        f"{worst.name}: {number(worst.recorded, 9)} in the record, {number(worst.replayed, 9)} now"
    )


def _place(first: Compared) -> dict[str, Any]:
    return {
        "kind": first.kind,
        "step": first.step,
        "same": first.num_same,
        "different": len(first.differences),
        "largest": [
            {
                "name": one.name,
                "recorded": one.recorded,
                "replayed": one.replayed,
                "share": one.share,
            }
            for one in first.differences[:MOST_DIFFERENCES]
        ],
    }


def _brief(compared: Compared) -> dict[str, Any]:
    return {
        "kind": compared.kind,
        "step": compared.step,
        "same": compared.num_same,
        "different": len(compared.differences),
        "largest_share": compared.differences[0].share if compared.differences else 0.0,
    }
