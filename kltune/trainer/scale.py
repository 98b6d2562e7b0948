"""The reference and a proxy in, sigma_R out: what one unit of advantage is worth in raw reward."""

from __future__ import annotations

import torch

from kltune.errors import SpecError
from kltune.metrics.record import RewardScale
from kltune.spec.trainer import TrainerSpec
from kltune.tasks.protocol import Prompt, Sample, Scorer
from kltune.trainer.data import EncodedPrompts, samples_of, spread_evenly
from kltune.trainer.keyed import Purpose, uniforms
from kltune.trainer.model import LoadedModel
from kltune.trainer.reduce import group_std
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
    gold: Scorer | None = None,
) -> RewardScale:
    """Group standard deviation (n - 1) of the proxy under the reference, mean over groups of train prompts.

    Raises:
        SpecError: ``gold`` is given and judges the first completions exactly as the proxy does.
    """
    indices = spread_evenly(len(train), NUM_GROUPS)
    group = trainer.group_size
    samples = sample_reference(loaded, train, indices, group, trainer, (seed, Purpose.SCALE))
    by_proxy = score_samples(proxy, samples, slot=-1)
    if gold is not None:
        _refuse_same(by_proxy[:NUM_COMPARED], gold, samples[:NUM_COMPARED])
    scores = torch.tensor(by_proxy, dtype=torch.float64)
    return RewardScale(
        sigma=float(group_std(scores.view(-1, group)).mean()),
        mean=float(scores.mean()),
        num_groups=len(indices),
        mean_tokens=sum(len(s.token_ids) for s in samples) / len(samples),
    )


def _refuse_same(by_proxy: list[float], gold: Scorer, samples: list[Sample]) -> None:
    by_gold = score_samples(gold, samples, slot=-1)
    if len(set(by_proxy)) > 1 and by_gold == by_proxy:
        raise SpecError(
            f"task.proxy and task.gold ({gold.name}) gave the same scores to {len(samples)} completions "
            "of the reference; gold must be a judgement that training never sees"
        )
