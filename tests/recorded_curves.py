"""Recorded trials in and out of one small file: what the guards look at, and nothing else.

A file is gzipped JSON of a list of curves: numbers with four digits (two in the profiles), none for NaN.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kltune.guard.curves import NAMES
from kltune.metrics.record import StepMetrics, TokenProfile
from kltune.trial.objective import EvalPoint

FOLDER = Path(__file__).parent / "guard" / "curves"
VALUES = (*NAMES.values(), "train/nonfinite_tokens")
HEAD = ("kl/exact_token", "kl/exact_seq", "train/proxy_mean", "ctrl/beta", "tokens/step")


@dataclass(frozen=True)
class Recorded:
    """One trial."""

    name: str
    steps: list[StepMetrics]
    points: list[EvalPoint]


def read_curves(path: Path) -> list[Recorded]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [_curve(one) for one in json.load(file)]


def write_curves(path: Path, curves: Iterable[Mapping[str, Any]]) -> None:
    text = json.dumps(list(curves), separators=(",", ":"), allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def of_folder(folder: Path, name: str) -> dict[str, Any]:
    """A trial folder as it is written."""
    steps = _lines(folder / "metrics.jsonl")
    tokens = {row["step"]: row for row in _lines(folder / "tokens.jsonl")}
    evals = _lines(folder / "evals.jsonl")
    return {
        "name": name,
        "edges": next((row["edges"] for row in tokens.values()), None),
        "steps": [
            [row["step"], *(_short(row.get(key)) for key in (*HEAD, *VALUES))] for row in steps
        ],
        "profiles": [_profile(tokens.get(row["step"])) for row in steps],
        "evals": [
            [
                row["step"],
                _short(row["eval/kl_token"]),
                _short(row["eval/kl_seq"]),
                [_short(gold, 3) for gold in row["gold_by_prompt"]],
            ]
            for row in evals
        ],
    }


def _curve(one: Mapping[str, Any]) -> Recorded:
    pairs = zip(one["steps"], one["profiles"], strict=True)
    points = [
        EvalPoint(step, tuple(map(_number, golds)), _number(token), _number(seq))
        for step, token, seq, golds in one["evals"]
    ]
    return Recorded(one["name"], [_step(row, p, one["edges"]) for row, p in pairs], points)


def _step(row: list[float | None], profile: Any, edges: list[int]) -> StepMetrics:
    number, *numbers = row
    kl_token, kl_seq, proxy, beta, tokens, *rest = map(_number, numbers)
    values = {
        name: value
        for name, value, raw in zip(VALUES, rest, numbers[len(HEAD) :], strict=True)
        if raw is not None or name in ("train/nonfinite_tokens",)
    }
    is_finite = math.isfinite(kl_token) and not values.get("train/nonfinite_tokens", 0.0) > 0
    place = None
    if profile is not None:
        kl, count = profile
        padded = len(edges) - 1 - len(kl)
        place = TokenProfile(tuple(edges), (*kl, *[0.0] * padded), (*count, *[0] * padded))
    return StepMetrics(
        0, 0, int(number or 0), kl_token, kl_seq, proxy, beta, int(tokens), is_finite, values, place
    )


def _profile(row: Mapping[str, Any] | None) -> Any:
    if row is None:
        return None
    count = row["tokens_by_position"]
    used = max((i + 1 for i, n in enumerate(count) if n), default=0)
    return [[_short(kl, 2) for kl in row["kl_by_position"][:used]], count[:used]]


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _short(value: float | None, digits: int = 4) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    if value == int(value):
        return int(value)
    return float(f"{value:.{digits}g}")


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
