"""A fake study's trial in, the token files that a real one would have, written beside its metrics, out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fake_study import FakeTrial, write_study

from kltune.metrics.jsonl import append_rows
from kltune.report.rows import TrialRow, read_study

QUANTILES = {"p50": 0.001, "p95": 0.4, "p99": 0.9, "max": 2.0}


def with_tokens(path: Path, trials: Sequence[FakeTrial], **options: Any) -> tuple[TrialRow, ...]:
    """Write a study whose trials recorded their tokens, and read it."""
    study = write_study(path, trials)
    for folder in sorted((study / "trials").iterdir()):
        write_tokens(folder, **options)
    return read_study(study).trials


def write_tokens(
    folder: Path, *, edges: Sequence[int] = (0, 1, 2, 4), texts: Sequence[str] = ("the", "a", "lid")
) -> None:
    """Profiles that grow with the steps, the most at the second bucket; quantiles; outliers at each evaluation."""
    steps = _rows(folder / "metrics.jsonl")
    for row in steps:
        step, count = row["step"], len(edges) - 1
        kl = [
            0.01 * step * (3.0 if bucket == min(1, count - 1) else 1.0) for bucket in range(count)
        ]
        profile = {"kl_by_position": kl, "tokens_by_position": [64, 32, 3][:count]}
        append_rows(folder / "tokens.jsonl", [{**_head(row), "edges": edges, **profile}])
        row.update({f"kl/exact_{name}_token": v * step for name, v in QUANTILES.items()})
        row["train/kl_proxy_corr"] = 0.25
        row["train/loss_policy"] = -0.001
        if step % 10 == 1:
            row["train/grad_kl_share"] = 0.005 * step
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in steps))
    evals = _rows(folder / "evals.jsonl")
    for row in evals:
        row.update({"eval/kl_proxy_corr": 0.5, "eval/kl_gold_corr": -0.3})
        if row["step"] > 0:
            before, token, after = texts
            outlier = {"prompt_id": "p1", "position": 3, "before": before, "token": token}
            numbers = {"kl": 2.5, "policy_logprob": -0.1, "reference_logprob": -7.0}
            full = {**_head(row), **outlier, "after": after, **numbers}
            append_rows(folder / "outliers.jsonl", [full] * 10)
    (folder / "evals.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in evals))


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _head(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("trial", "attempt", "step", "time")}
