"""A study in which guards ended trials and warned of others, as rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fake_study import FakeTrial, trial, write_study

from kltune.report.rows import StudyRows, read_study
from kltune.trial.outcome import StopReason

CUT = ("truncation", 30, "60 % of the completions are cut")


def guarded(folder: Path, trials: list[FakeTrial] | None = None, **spec: Any) -> StudyRows:
    fakes = trials or [
        trial(0.1),
        trial(0.2, steps=30, reason=StopReason.GOLD_DROP, detail="gold fell by 0.3"),
        trial(
            0.3, steps=50, reason=StopReason.GOLD_DROP, detail="gold fell by 0.2", warnings=[CUT]
        ),
        trial(0.4, warnings=[CUT, ("entropy_collapse", 40, "entropy 0.1 nats/token")]),
    ]
    return read_study(write_study(folder, fakes, **{"objective": {"metric": "gold_peak"}, **spec}))
