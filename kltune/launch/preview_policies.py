"""A study's trained policies in, their own completions and every completion's density under each of them out.

What makes a preview see further than the reference's own completions: these lie where the reference
seldom goes, and multiple importance sampling (`kltune.statistics.reweight`) weighs them in. The
completions that a trial's record keeps (samples.jsonl) can't serve: their density is known
neither under their own policy nor under any other, and all trials of a seed drew them with the
same uniforms, so they are copies rather than independent draws. The best checkpoints are kept,
so fresh completions are drawn from these. Importing this loads torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kltune.launch.assemble import Ground, build_bank
from kltune.launch.preview_draw import Plan, draw_policy
from kltune.launch.saying import say
from kltune.metrics.record import RewardScale
from kltune.report.rows import TrialRow, read_study
from kltune.spec.study import StudySpec
from kltune.trainer.bank import Bank
from kltune.trainer.data import spread_evenly
from kltune.trainer.logprobs import Completions, score
from kltune.trainer.rollout import Rollout
from kltune.trainer.weights import load_weights

MOST = 4
"""Trained policies that are weighed in: the work grows with the square of their number."""

LEAST_KL = 0.05
"""A policy nearer to the reference than this many nats per sequence adds nothing to it."""

_UNIT = RewardScale(sigma=1.0, std=1.0, mean=0.0, num_groups=1, mean_tokens=1.0)
"""Nothing is trained here, so no reward has a scale."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Completions of several policies."""

    names: tuple[str, ...]
    """Of the trained ones; the reference comes before them."""
    drawn: tuple[list[Rollout], ...]
    """Of each trained policy."""
    count: int
    """Completions per prompt of each trained policy."""
    log_ratio_SPM: NDArray[np.float64]
    """Log of policy over reference, summed over the tokens, at all completions of a prompt: the
    reference's first, then each policy's. The first policy is the reference itself."""


def draw_trained(
    ground: Ground, plan: Plan, spec: StudySpec, study: Path, reference: list[Rollout]
) -> Mixture | None:
    """Draw from the best checkpoints of up to `MOST` trials; none where no trial has one.

    Raises:
        StudyError: the folder is not a study.
        RunError: a checkpoint can't be read.
    """
    rows = _chosen(study)
    if not rows:
        say(
            f"{study}: no trial with a best checkpoint away from the reference; nothing is weighed in"
        )
        return None
    bank = build_bank(ground, spec, _UNIT, slots=1)
    count = max(2, plan.samples // 2)
    drawn: list[list[Rollout]] = []
    names: list[str] = []
    for number, row in enumerate(rows, start=1):
        step = _load(bank, row)
        names.append(f"trial {row.number} at step {step}")
        say(f"drawing {count} completions per prompt of {names[-1]} ...")
        adapted = bank.parts.stack, bank.parts.stack.view([0])
        drawn.append(draw_policy(ground, plan, count, number, adapted))
    say("weighing every completion under every policy ...")
    sources = [(plan.samples, reference), *((count, pieces) for pieces in drawn)]
    total = sum(n for n, _ in sources)
    log_ratios = [np.zeros((len(plan.indices), total))]
    for row in rows:
        _load(bank, row)
        log_ratios.append(np.concatenate([_log_ratio(bank, d, n) for n, d in sources], axis=1))
    return Mixture(tuple(names), tuple(drawn), count, np.stack(log_ratios))


def _chosen(study: Path) -> list[TrialRow]:
    """Trials with a best checkpoint, evenly spread over the KL that it lies at."""
    rows = [
        row
        for row in read_study(study).trials
        if row.peak is not None
        and row.peak.kl_seq > LEAST_KL
        and (row.folder / "checkpoints" / "best" / "adapter.json").is_file()
    ]
    rows.sort(key=lambda row: 0.0 if row.peak is None else row.peak.kl_seq)
    return [rows[i] for i in spread_evenly(len(rows), MOST)] if rows else []


def _load(bank: Bank, row: TrialRow) -> int:
    return load_weights(row.folder / "checkpoints" / "best", 0, bank.parts.stack)


def _log_ratio(bank: Bank, drawn: list[Rollout], count: int) -> NDArray[np.float64]:
    """Log of the loaded policy over the reference at each completion, ``[P, count]``."""
    import torch

    parts = bank.parts
    view = parts.stack.view([0])
    sums: list[NDArray[np.float64]] = []
    for piece in drawn:
        with torch.no_grad():
            found = score(parts.loaded, parts.stack, view, Completions.of(piece), parts.scoring)
        ratio_NT = (found.policy_KNT - found.reference_KNT)[0].double()
        sums.append(ratio_NT.sum(dim=1).cpu().numpy())
    return np.concatenate(sums).reshape(-1, count)
