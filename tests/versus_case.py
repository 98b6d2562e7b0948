"""Two small studies that may be compared, one better than the other."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fake_study import FakeTrial, trial, write_study

from kltune.metrics.jsonl import write_json
from kltune.report.versus import Side, read_sides
from kltune.report.versus_findings import VersusFindings, compare_studies

PRINTS = {"prompts (select)": "a" * 64, "gold": "b" * 64, "model": "c" * 64}
LOW, HIGH = 0.4, 0.9


def golds(peak: float) -> list[float]:
    return [0.1, peak / 2, peak, peak, peak * 0.9, peak * 0.8, peak * 0.7, peak * 0.6, peak * 0.5]


def a_study(
    folder: Path,
    peak: float = LOW,
    prints: Mapping[str, str] | None = None,
    scatter: int = 0,
    **spec: Any,
) -> Path:
    trials = [
        trial(0.1, gold=golds(peak), noise=0.2),
        trial(0.0, origin="zero", gold=golds(peak * 0.6), noise=0.2),
        trial(round(peak / 10, 3), gold=golds(peak * 0.5), noise=0.2),
    ]
    path = stated(write_study(folder, trials, **spec), PRINTS if prints is None else prints)
    return scattered(path, scatter) if scatter else path


def stated(path: Path, prints: Mapping[str, str]) -> Path:
    """With the fingerprints of what it was run on."""
    if prints:
        write_json(path / "inputs.json", {"schema": 1, "inputs": dict(prints)})
    return path


def scattered(path: Path, seed: int) -> Path:
    """With other noise by prompt and the same means: fakes of one number are else the same run."""
    for target in path.glob("trials/*/evals.jsonl"):
        rng = random.Random(f"{seed}/{target.parent.name}")
        rows = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            drawn = [rng.gauss(0, 0.2) for _ in row["gold_by_prompt"]]
            mean = sum(drawn) / len(drawn)
            pairs = zip(row["gold_by_prompt"], drawn, strict=True)
            row["gold_by_prompt"] = [gold + x - mean for gold, x in pairs]
        target.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def two(folder: Path, **spec: Any) -> tuple[Path, Path]:
    """A low and a high one."""
    return a_study(folder / "low", LOW, **spec), a_study(folder / "high", HIGH, scatter=1, **spec)


def other_trials(path: Path, trials: list[FakeTrial]) -> Path:
    return stated(write_study(path, trials), PRINTS)


def sides(*paths: Path) -> tuple[Side, ...]:
    return read_sides(paths)


def findings(*paths: Path) -> VersusFindings:
    return compare_studies(read_sides(paths))
