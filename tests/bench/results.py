"""Steps seen in, one row per contender and the Markdown table out: pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from tests.bench.contenders import Step
from tests.bench.work import Flops

UPDATE = ("logprobs", "update")
"""Phases that make up the update: the policy's forward, backward and optimiser. No two phases overlap."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one contender showed."""

    name: str
    trainer: str
    slots: int
    workers: int
    threads: int
    """Of each worker."""
    arithmetic: str
    trial_step_s: float
    """Median over rounds of the step's wall time, divided by the slots."""
    trial_step_min_s: float
    trial_step_max_s: float
    trial_steps_per_s: float
    tokens_per_s: float
    """Completion tokens."""
    mean_length: float
    """Tokens per completion, as realised."""
    shares: Mapping[str, float | None]
    """Of the step: rollout, reference (none: within the update), update, other."""
    seconds: Mapping[str, float]
    """Per trial-step and phase, as the trainer reports them, means over rounds."""
    gflops: float
    """Useful GFLOP/s, each completion's prompt counted."""
    peak_share: float
    """The same as a share of the matrix-product limit of its arithmetic."""
    peak_share_prompts_once: float
    """With the prompt of a group counted once."""
    scoring_share: float
    """Forward and backward of the update and the reference's forward, as a share of the limit."""
    scoring_share_prompts_once: float
    peak_mb: float
    times_baseline: float | None
    """TRL's seconds per trial-step over this one's."""
    memory_of_baseline: float | None
    rounds_s: tuple[float, ...]
    """Seconds per trial-step, round by round."""
    foreign: tuple[float, ...]
    """Processors that others used meanwhile."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a row needs besides its steps."""

    name: str
    trainer: str
    slots: int
    workers: int
    threads: int
    arithmetic: str
    peak_mb: float
    flops: Flops
    flops_prompts_once: Flops
    peak_gflops: float


def make_row(facts: Facts, steps: Sequence[Step]) -> Row:
    """Summarise the rounds of one contender."""
    slots = facts.slots
    per_trial = [step.seconds / slots for step in steps]
    middle = median(per_trial)
    # Every process of a contender says how long each phase took it; shares are of their own steps.
    seconds = {n: fmean(s.phases[n] for s in steps) / slots for n in steps[0].phases}
    scored = sum(seconds.get(name, 0.0) for name in ("reference", *UPDATE)) / facts.workers
    peak = facts.peak_gflops * 1e9
    once = facts.flops_prompts_once
    return Row(
        name=facts.name,
        trainer=facts.trainer,
        slots=slots,
        workers=facts.workers,
        threads=facts.threads,
        arithmetic=facts.arithmetic,
        trial_step_s=middle,
        trial_step_min_s=min(per_trial),
        trial_step_max_s=max(per_trial),
        trial_steps_per_s=1 / middle,
        tokens_per_s=median(step.tokens / step.seconds for step in steps),
        mean_length=fmean(step.mean_length for step in steps),
        shares=phase_shares(seconds),
        seconds=seconds,
        gflops=facts.flops.total / middle / 1e9,
        peak_share=facts.flops.total / middle / peak,
        peak_share_prompts_once=once.total / middle / peak,
        scoring_share=facts.flops.scoring / scored / peak,
        scoring_share_prompts_once=once.scoring / scored / peak,
        peak_mb=facts.peak_mb,
        times_baseline=None,
        memory_of_baseline=None,
        rounds_s=tuple(per_trial),
        foreign=tuple(step.foreign for step in steps),
    )


def phase_shares(seconds: Mapping[str, float]) -> dict[str, float | None]:
    """Phases as shares of ``step``; what is in none of the three (scores, books) is other."""
    whole = seconds["step"]
    rollout = seconds["rollout"] / whole
    update = sum(seconds.get(name, 0.0) for name in UPDATE) / whole
    reference = seconds["reference"] / whole if "reference" in seconds else None
    other = 1 - rollout - update - (reference or 0.0)
    return {"rollout": rollout, "reference": reference, "update": update, "other": other}


def pick_baseline(rows: Sequence[Row]) -> Row | None:
    """TRL's best setting."""
    return min(
        (row for row in rows if row.trainer == "trl"), key=lambda r: r.trial_step_s, default=None
    )


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Least-squares slope of log y over log x: 1 is linear growth."""
    log_x, log_y = [math.log(v) for v in x], [math.log(v) for v in y]
    mean_x, mean_y = fmean(log_x), fmean(log_y)
    across = sum((a - mean_x) * (b - mean_y) for a, b in zip(log_x, log_y, strict=True))
    return across / sum((a - mean_x) ** 2 for a in log_x)


HEADINGS = (
    "contender",
    "trial-steps/s",
    "s per trial-step (min to max)",
    "tokens/s",
    "rollout / reference / update / other",
    "useful GFLOP/s",
    "of the limit (prompts once)",
    "forward + backward of the limit (prompts once)",
    "peak memory, MB",
    "times TRL",
    "memory / TRL",
)


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    shares = [row.shares[name] for name in ("rollout", "reference", "update", "other")]
    return [
        f"{row.name}, {row.arithmetic}",
        f"{row.trial_steps_per_s:.3g}",
        f"{row.trial_step_s:.3g} ({row.trial_step_min_s:.3g} to {row.trial_step_max_s:.3g})",
        f"{row.tokens_per_s:.0f}",
        " / ".join("in update" if s is None else f"{100 * s:.0f} %" for s in shares),
        f"{row.gflops:.3g}",
        f"{100 * row.peak_share:.0f} % ({100 * row.peak_share_prompts_once:.0f} %)",
        f"{100 * row.scoring_share:.0f} % ({100 * row.scoring_share_prompts_once:.0f} %)",
        f"{row.peak_mb:.0f}",
        _ratio(row.times_baseline),
        _ratio(row.memory_of_baseline),
    ]


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def growth_table(points: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Seconds per trial-step over each quantity that was varied alone, with the log-log slope."""
    lines = ["| varied | seconds per trial-step | log-log slope |", "|---|---|---|"]
    for name, found in points.items():
        seen = ", ".join(f"{x}: {y:.3g}" for x, y in found)
        steep = slope([x for x, _ in found], [y for _, y in found])
        lines.append(f"| {name} | {seen} | {steep:.2f} |")
    return "\n".join(lines) + "\n"


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as plain numbers."""
    from dataclasses import asdict

    return [asdict(row) for row in rows]
