"""A few trials' seconds in, the seconds of a whole sweep out: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any


@dataclass(frozen=True, slots=True)
class TrialTime:
    """Where one trial's seconds went; what is in no part is bookkeeping between them."""

    whole_s: float
    make_s: float
    steps_s: float
    evaluate_s: float
    mean_length: float
    """Tokens per completion."""


def total(times: Sequence[TrialTime], start_up_s: float, trials: int) -> dict[str, Any]:
    """Scale the mean, the fastest and the slowest trial to ``trials`` of them."""
    whole = [t.whole_s for t in times]
    return {
        "trials": trials,
        "start_up_s": start_up_s,
        "trial_s": fmean(whole),
        "total_s": start_up_s + trials * fmean(whole),
        "total_min_s": start_up_s + trials * min(whole),
        "total_max_s": start_up_s + trials * max(whole),
        "measured": [asdict(t) for t in times],
    }


def total_text(found: dict[str, Any]) -> str:
    """The same in words."""
    measured = found["measured"]
    parts = {
        name: fmean(t[f"{name}_s"] for t in measured) for name in ("make", "steps", "evaluate")
    }
    return (
        f"{len(measured)} trials measured: {found['trial_s']:.1f} s each (building {parts['make']:.1f}, "
        f"steps {parts['steps']:.1f}, evaluations {parts['evaluate']:.1f}), start-up "
        f"{found['start_up_s']:.1f} s; {found['trials']} trials one after another: "
        f"{found['total_s']:.0f} s ({found['total_min_s']:.0f} to {found['total_max_s']:.0f})"
    )
