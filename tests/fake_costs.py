"""A fake study's folder in, the same with seconds, operations and a timing.json as a real search leaves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kltune.metrics.jsonl import write_json

STEP_S, EVALUATION_S = 0.2, 0.5
STEP_GFLOP, EVALUATION_GFLOP = 6.0, 9.0
PHASES = {"rollout": 0.08, "score": 0.02, "logprobs": 0.04, "reference": 0.02, "update": 0.03}


def add_costs(study_path: Path, *, is_counted: bool = True) -> None:
    """Every step takes 0.2 s and 6 GFLOP, every evaluation 0.5 s and 9 GFLOP."""
    step: dict[str, float] = {f"time/{name}_s": value for name, value in PHASES.items()}
    step["time/step_s"] = STEP_S
    evaluation = {"time/evaluate_s": EVALUATION_S}
    if is_counted:
        step["compute/step_gflop"] = STEP_GFLOP
        evaluation["compute/evaluate_gflop"] = EVALUATION_GFLOP
    for folder in (study_path / "trials").iterdir():
        extend(folder / "metrics.jsonl", step)
        extend(folder / "evals.jsonl", evaluation)


def extend(path: Path, values: dict[str, Any]) -> None:
    """Add the same values to every row."""
    if path.exists():
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        lines = [json.dumps({**row, **values}, ensure_ascii=False) + "\n" for row in rows]
        path.write_text("".join(lines), encoding="utf-8", errors="surrogatepass")


def add_timing(study_path: Path, **changes: Any) -> None:
    """One session of 100 s of wall time, 95 of them in the trainer; None removes a key."""
    timing: dict[str, Any] = {
        "sessions": 1,
        "wall_s": 100.0,
        "trainer_s": 95.0,
        "mirror_cpu_s": 1.0,
    }
    timing |= {"bookkeeping_frac": 0.06, **changes}
    kept = {name: value for name, value in timing.items() if value is not None}
    write_json(study_path / "timing.json", {"schema": 1, **kept})


def placed(workers: int, slots: int, threads: int = 1) -> dict[str, int]:
    """A placement as it is recorded."""
    return {"workers": workers, "slots": slots, "threads": threads}
