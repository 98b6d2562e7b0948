"""The reference and a proxy in, sigma_R out: what one unit of advantage is worth in raw reward."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, stdev

import torch

from kltune.errors import SpecError, TrialFault
from kltune.metrics.record import RewardScale
from kltune.spec.trainer import TrainerSpec
from kltune.statistics.single_precision import lost_in_single
from kltune.tasks.protocol import Prompt, Sample, Scorer
from kltune.trainer.data import EncodedPrompts, samples_of, spread_evenly
from kltune.trainer.keyed import Purpose, uniforms
from kltune.trainer.model import LoadedModel
from kltune.trainer.rollout import Sampling, rollout
from kltune.trainer.score import score_samples

NUM_GROUPS = 32
"""Prompts that sigma_R is measured on (fewer where the train split is smaller)."""

NUM_COMPARED = 32
"""Completions on which gold and proxy must not agree to the last digit."""


def sample_reference(
    loaded: LoadedModel,
    prompts: EncodedPrompts,
    indices: list[int],
    per_prompt: int,
    trainer: TrainerSpec,
    draw: tuple[int, Purpose],
) -> list[Sample]:
    """``per_prompt`` completions of each prompt by the base without adapters, by prompt then sample.

    ``draw``: seed and purpose that key the uniforms. A few prompts at a time.
    """
    seed, purpose = draw
    at_once = max(1, trainer.rows // per_prompt)
    draws = uniforms(seed, purpose, 0, len(indices) * per_prompt, trainer.max_new_tokens)
    sampling = Sampling(per_prompt, trainer.max_new_tokens, trainer.temperature, compact=True)
    samples: list[Sample] = []
    for first in range(0, len(indices), at_once):
        part = indices[first : first + at_once]
        rows: list[Prompt] = [prompts.prompts[i] for i in part for _ in range(per_prompt)]
        padded = prompts.pad(part, loaded.pad_id, loaded.device, full_width=False)
        cut = torch.from_numpy(draws[len(samples) : len(samples) + len(rows)])[None]
        drawn = rollout(loaded, padded, cut.to(loaded.device), sampling)
        samples += samples_of(loaded, drawn, 0, rows)
    return samples


def measure_scale(
    loaded: LoadedModel,
    train: EncodedPrompts,
    proxy: Scorer,
    trainer: TrainerSpec,
    seed: int,
    golds: Mapping[str, Scorer] | None = None,
) -> RewardScale:
    """Spread of the proxy under the reference: within a group (n - 1, mean over groups of train prompts), and over all.

    Completions that the proxy can't score, and groups with fewer than two scores, are left out.

    Raises:
        SpecError: a scorer fails on them, the proxy's scores can't be told apart in single precision, or one of ``golds`` (by field) judges the first completions
            exactly as the proxy does.
    """
    indices = spread_evenly(len(train), NUM_GROUPS)
    group = trainer.group_size
    samples = sample_reference(loaded, train, indices, group, trainer, (seed, Purpose.SCALE))
    by_proxy = _scored("task.proxy", proxy, samples, may_skip=True)
    for field, gold in (golds or {}).items():
        _refuse_same(by_proxy[:NUM_COMPARED], field, gold, samples[:NUM_COMPARED])
    groups = [by_proxy[i : i + group] for i in range(0, len(by_proxy), group)]
    scored = [[score for score in one if not math.isnan(score)] for one in groups]
    spreads = [stdev(one) for one in scored if len(one) > 1]
    flat = [score for one in scored for score in one]
    sigma = fmean(spreads) if spreads else 0.0
    lost = lost_in_single(fmean(flat), sigma, max(map(abs, flat)))
    if lost is not None:
        raise SpecError(
            f"task.proxy: {lost}; training computes in it, so subtract a constant from the proxy, or scale it"
        )
    return RewardScale(
        sigma=sigma,
        std=stdev(flat) if len(flat) > 1 else 0.0,
        mean=fmean(flat),
        num_groups=len(spreads),
        mean_tokens=sum(len(s.token_ids) for s in samples) / len(samples),
    )


def _scored(
    field: str, scorer: Scorer, samples: list[Sample], *, may_skip: bool = False
) -> list[float]:
    """Its scores before any trial: what is wrong with them is wrong with the spec."""
    try:
        return score_samples(scorer, samples, slot=-1, may_skip=may_skip)
    except TrialFault as fault:
        raise SpecError(f"{field}: {fault}") from fault


def _refuse_same(by_proxy: list[float], field: str, gold: Scorer, samples: list[Sample]) -> None:
    by_gold = _scored(field, gold, samples)
    if len(set(by_proxy)) > 1 and by_gold == by_proxy:
        raise SpecError(
            f"task.proxy and {field} ({gold.name}) gave the same scores to {len(samples)} completions "
            "of the reference; gold must be a judgement that training never sees"
        )
