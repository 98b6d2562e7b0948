"""The runs of a confirmation on disk in, which are missing and what the others measured out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kltune.confirm.design import Design
from kltune.errors import RunError
from kltune.study.repeat import Run
from kltune.tasks.protocol import Prompt, Sample, Scorer
from kltune.tasks.thought import split_thought
from kltune.trial.outcome import StopReason
from kltune.trial.record import TrialRecord, read_samples, read_trial

Cell = tuple[int, int]
"""(seed's place, arm's place) in a design."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One run that was judged."""

    folder: Path
    step: int
    """At which it was judged; below its stop where it diverged before."""
    gold_by_prompt: tuple[float, ...]
    kl_token: float
    kl_seq: float
    proxy: float
    is_diverged: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Runs:
    """What is on disk, by place in the design."""

    judged: Mapping[Cell, Judged]
    missing: tuple[Run, ...]
    """In the order in which they are to run: seed by seed, so that an interruption leaves whole seeds."""


def find_runs(folder: Path, design: Design) -> Runs:
    """Match the runs below ``folder`` with a design; those of other designs count where they are the same."""
    records = [read_trial(path.parent) for path in sorted(folder.glob("runs/*/config.json"))]
    by_key: dict[str, TrialRecord] = {}
    for record in records:
        key = _key_of_record(record)
        if key is not None and (key not in by_key or judged_of(record) is not None):
            by_key[key] = record
    judged: dict[Cell, Judged] = {}
    missing: list[Run] = []
    number = max((record.number for record in records), default=-1) + 1
    for s, seed in enumerate(design.seeds):
        for k, arm in enumerate(design.arms):
            setting = arm.setting.model_copy(update={"seed": seed})
            about = design.about(arm)
            record = by_key.get(_key(setting.model_dump(mode="json"), arm.stop, about))
            found = None if record is None else judged_of(record)
            if found is not None:
                judged[s, k] = found
                continue
            origin = "start" if arm.number is None else f"confirm:{arm.number}"
            old, attempt = (number, 1) if record is None else (record.number, record.attempt + 1)
            number += record is None
            missing.append(Run(old, setting, arm.stop, origin, about, attempt))
    return Runs(judged, tuple(missing))


def judged_of(record: TrialRecord) -> Judged | None:
    """What a run measured on test; none where it has not got that far."""
    outcome = record.outcome
    if outcome is None or outcome.verdict.reason not in (StopReason.DONE, StopReason.DIVERGED):
        return None
    if not record.evals:
        return None
    row = record.evals[-1]
    golds = tuple(_number(gold) for gold in row["gold_by_prompt"])
    if not all(math.isfinite(gold) for gold in golds):
        return None
    times = [r.get("time/step_s") for r in record.steps] + [row.get("time/evaluate_s")]
    return Judged(
        folder=record.folder,
        step=int(row["step"]),
        gold_by_prompt=golds,
        kl_token=_number(row["eval/kl_token"]),
        kl_seq=_number(row["eval/kl_seq"]),
        proxy=_number(row["eval/proxy"]),
        is_diverged=outcome.verdict.reason is StopReason.DIVERGED,
        seconds=sum(t for t in times if isinstance(t, int | float)),
    )


def whole_seeds(design: Design, judged: Mapping[Cell, Judged]) -> tuple[int, ...]:
    """Places of the seeds in which every setting was judged."""
    arms = range(len(design.arms))
    return tuple(s for s in range(len(design.seeds)) if all((s, k) in judged for k in arms))


def gold_array(design: Design, judged: Mapping[Cell, Judged], seeds: Sequence[int]) -> np.ndarray:
    """Gold by seed, setting and prompt."""
    arms = range(len(design.arms))
    return np.array([[judged[s, k].gold_by_prompt for k in arms] for s in seeds], dtype=float)


def other_golds(judged: Mapping[Cell, Judged], seeds: Sequence[int]) -> tuple[str, ...]:
    """Further golds of the spec that were recorded with every completion."""
    first = judged[seeds[0], 0]
    rows = read_samples(first.folder, first.step)
    return tuple(rows[0].get("golds", {})) if rows else ()


def recorded_array(
    name: str, design: Design, judged: Mapping[Cell, Judged], seeds: Sequence[int]
) -> np.ndarray:
    """A further gold of the spec, by seed, setting and prompt."""

    def of(run: Judged) -> list[float]:
        return [float(row["golds"][name]) for row in read_samples(run.folder, run.step)]

    return _by_prompt(of, design, judged, seeds)


def scored_array(
    scorer: Scorer,
    prompts: Sequence[Prompt],
    design: Design,
    judged: Mapping[Cell, Judged],
    seeds: Sequence[int],
    answer_after: str | None = None,
) -> np.ndarray:
    """A second gold's scores of the same completions, by seed, setting and prompt; of what comes after ``answer_after``.

    Raises:
        RunError: the scorer failed, or could not score a completion.
    """
    by_id = {prompt.id: prompt for prompt in prompts}

    def of(run: Judged) -> list[float]:
        rows = read_samples(run.folder, run.step)
        samples = [
            Sample(by_id[row["prompt_id"]], answer, (), bool(row["ended"]), thought)
            for row in rows
            for thought, answer in [split_thought(row["completion"], answer_after)]
        ]
        scores = [_number(score) for score in scorer(samples)]
        if not all(math.isfinite(score) for score in scores):
            raise RunError(
                f"--gold: {scorer.name} could not score a completion; a gold must score all"
            )
        return scores

    return _by_prompt(of, design, judged, seeds)


def _by_prompt(
    of: Any, design: Design, judged: Mapping[Cell, Judged], seeds: Sequence[int]
) -> np.ndarray:
    rows = [[of(judged[s, k]) for k in range(len(design.arms))] for s in seeds]
    values = np.array(rows, dtype=float)
    return values.reshape(*values.shape[:2], design.num_prompts, design.samples).mean(axis=3)


def _key_of_record(record: TrialRecord) -> str | None:
    started = [e for e in record.events if e.get("event") in ("started", "resumed")]
    if not started or "stop" not in started[-1]:
        return None
    return _key(record.setting.model_dump(mode="json"), int(started[-1]["stop"]), started[-1])


def _key(setting: Mapping[str, Any], stop: int, about: Mapping[str, Any]) -> str:
    """Two runs with the same key would be the same: setting with seed, stop, prompts and how many samples."""
    same = [about[name] for name in ("split", "prompts", "samples", "digest")]
    return repr((sorted(setting.items()), stop, same))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
