"""Contenders in; every one steps in turn, round after round, and a report comes out."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Protocol

import psutil

from tests.bench.contenders import Contender, Running, Step
from tests.bench.job import Job
from tests.bench.models import shape_of
from tests.bench.results import Facts, Row, make_row, pick_baseline
from tests.bench.work import count_flops

Limits = Mapping[str, Sequence[float]]
"""GFLOP/s of matrix products, once per round, by arithmetic."""

DISTURBED = 0.15
"""Processors used by others during a step above which it is repeated."""

Counts = tuple[int, int, int]
"""Steps that don't count, steps that do, and how often one of these is repeated when disturbed."""


@dataclass(frozen=True, slots=True)
class Report:
    """Rows under a header that says what they were measured on."""

    header: dict[str, object]
    rows: list[Row]
    growth: dict[str, list[tuple[int, float]]] = field(
        default_factory=dict[str, list[tuple[int, float]]]
    )

    def header_lines(self) -> str:
        """The header as a Markdown list."""
        return "".join(f"- {name}: {value}\n" for name, value in self.header.items())


def measure(contenders: Sequence[Contender], base: Job, counts: Counts, folder: Path) -> Report:
    """Step every contender in turn.

    Raises:
        RuntimeError: a process ended, or prompts or lengths were not the same for all.
    """
    arithmetic = "bf16" if any(_is_bf16(job) for c in contenders for job in c.jobs) else "fp32"
    limit = replace(base, trainer="peak", precision=arithmetic)
    running: list[Running] = []
    try:
        everyone = [Contender("limit", (limit,)), *contenders]
        print(f"loading {', '.join(c.name for c in contenders)}", flush=True)
        for contender in everyone:
            running.append(Running(contender, folder))
        prompts = [each.wait().get("prompt_tokens", 0.0) for each in running][1:]
        steps, limits = _take_turns(running[1:], running[0], counts)
        peaks = [each.peak_mb for each in running[1:]]
    finally:
        for each in running:
            each.stop()
    refuse_unequal(contenders, prompts, steps)
    rows = [
        _row(c, seen, limits, (prompts[0], mb))
        for c, seen, mb in zip(contenders, steps, peaks, strict=True)
    ]
    foreign = [step.foreign for seen in steps for step in seen]
    return Report(_header(base, limits, prompts[0], foreign), compare(rows))


def _take_turns(
    running: Sequence[Running], limit: Running, counts: Counts
) -> tuple[list[list[Step]], dict[str, list[float]]]:
    warm, rounds, retries = counts
    steps: list[list[Step]] = [[] for _ in running]
    limits: dict[str, list[float]] = {}
    for turn in range(warm + rounds):
        said: list[str] = []
        for name, value in limit.ask()[1][0]["gflops"].items():
            said.append(f"{name} {value:.0f} GFLOP/s")
            if turn >= warm:
                limits.setdefault(name, []).append(value)
        for each, seen in zip(running, steps, strict=True):
            step = quiet_step(each, 0 if turn < warm else retries)
            said.append(f"{each.contender.name} {step.seconds / each.contender.slots:.3g} s")
            if turn >= warm:
                seen.append(step)
        label = f"warm {turn + 1}" if turn < warm else f"round {turn + 1 - warm}"
        print(f"{label}, per trial-step: {', '.join(said)}", flush=True)
    return steps, limits


class Stepping(Protocol):
    """What can take a step."""

    def step(self) -> Step:
        """Take it."""
        ...


def quiet_step(running: Stepping, retries: int) -> Step:
    """A step; again where others were busy meanwhile, at most so often: the quietest counts."""
    seen = [running.step()]
    while seen[-1].foreign > DISTURBED and len(seen) <= retries:
        seen.append(running.step())
    return min(seen, key=lambda step: step.foreign)


def refuse_unequal(
    contenders: Sequence[Contender], prompts: Sequence[float], steps: Sequence[Sequence[Step]]
) -> None:
    """Every contender must have had the same prompts, and its completions the length asked for.

    Raises:
        RuntimeError: one had not.
    """
    for contender, prompt, seen in zip(contenders, prompts, steps, strict=True):
        tokens = contender.jobs[0].work.tokens
        lengths = {step.mean_length for step in seen}
        if prompt != prompts[0] or lengths != {float(tokens)}:
            raise RuntimeError(
                f"{contender.name} had other work: prompts of {prompt} tokens (the first: "
                f"{prompts[0]}), completions of {sorted(lengths)} tokens (asked: {tokens})"
            )


def _row(
    contender: Contender, steps: Sequence[Step], limits: Limits, seen: tuple[float, float]
) -> Row:
    job, (prompt_tokens, peak_mb) = contender.jobs[0], seen
    shape = shape_of(Path(job.folder))
    once, each = (
        count_flops(shape, job.work, prompt_tokens, prompts_once=share) for share in (True, False)
    )
    facts = Facts(
        name=contender.name,
        trainer=job.trainer,
        slots=contender.slots,
        workers=len(contender.jobs),
        threads=job.threads,
        arithmetic=_arithmetic(job),
        peak_mb=peak_mb,
        flops=each,
        flops_prompts_once=once,
        peak_gflops=median(limits["bf16" if _is_bf16(job) else "fp32"]),
    )
    return make_row(facts, steps)


def compare(rows: list[Row]) -> list[Row]:
    """Fill in each row's ratios to TRL's best setting, where TRL took part."""
    best = pick_baseline(rows)
    if best is None:
        return rows
    return [
        replace(
            row,
            times_baseline=best.trial_step_s / row.trial_step_s,
            memory_of_baseline=row.peak_mb / best.peak_mb,
        )
        for row in rows
    ]


def _is_bf16(job: Job) -> bool:
    return "bf16" in _arithmetic(job)


def _arithmetic(job: Job) -> str:
    match job.precision, job.dtype:
        case "fp32", "float32":
            return "fp32"
        case "bf16", "bfloat16":
            return "bf16"
        case "bf16", _:
            return "bf16 over fp32 weights"
        case _:
            return "fp32 over bf16 weights"


def _header(
    base: Job, limits: Limits, prompt_tokens: float, foreign: Sequence[float]
) -> dict[str, object]:
    shape, work = shape_of(Path(base.folder)), base.work
    each, once = (
        count_flops(shape, work, prompt_tokens, prompts_once=share).total / 1e9
        for share in (False, True)
    )
    versions = [f"{name} {_version(name)}" for name in ("kltune", "torch", "transformers", "trl")]
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": f"{platform.machine()}, {psutil.cpu_count(logical=False)} cores, "
        f"{psutil.cpu_count()} hardware threads, {base.threads} threads used",
        "versions": ", ".join(versions),
        "model": f"{base.model}: {shape.body / 1e6:.3g} million weights in the layers, "
        f"{shape.head / 1e6:.3g} million in the head",
        "work": f"{work.completions} completions x {work.tokens} tokens (forced), groups of 8, prompts of "
        f"{prompt_tokens:.1f} tokens; {each:.3g} useful GFLOP per trial-step "
        f"({once:.3g} with each group's prompt counted once)",
        "limit, GFLOP/s": ", ".join(
            f"{name} {median(seen):.0f} ({min(seen):.0f} to {max(seen):.0f})"
            for name, seen in limits.items()
        ),
        "rounds": len(next(iter(limits.values()))),
        "processors used by others during the steps": f"median {median(foreign):.2f}, most "
        f"{max(foreign):.2f}",
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(absent)"
