"""A policy in its row, prompts and penalties in; blocks of completions with every expected gradient out.

Nothing is trained. Blocks are independent: prompts are drawn anew for each, with replacement,
so products of two blocks' gradients have the product of the expectations as their mean. Where
every completion can be enumerated, a block is one prompt with all of them, weighted by their
probability, and the blocks add up to the truth for these prompts.
Shapes: R enumerated completions, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kltune.spec.penalty import Penalty
from kltune.spec.trial import TrialSpec
from kltune.trainer.data import EncodedPrompts, spread_evenly
from kltune.trainer.encode import PaddedPrompts
from kltune.trainer.enumerate import every_completion, is_small
from kltune.trainer.keyed import Purpose, generator, uniforms
from kltune.trainer.model import LoadedModel
from kltune.trainer.parts import BankParts
from kltune.trainer.penalty_gradients import Terms
from kltune.trainer.prices import advantage_divisor, prices
from kltune.trainer.probe_block import Look, ProbeBlock
from kltune.trainer.rollout import Rollout, rollout
from kltune.trainer.shaping import Moments, shape_scores
from kltune.units import in_advantage_units


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """How much is looked at."""

    num_blocks: int
    """Sampled blocks; enumerated, there is one per prompt."""
    prompts_per_block: int
    max_prompts: int = 64
    """Prompts that are enumerated, evenly spread."""
    seed: int = 0
    has_reward: bool = True
    """Whether the data's proxy is one: without it there is no policy gradient."""
    reference: LoadedModel | None = None
    """Another model as the reference; none: the bank's own."""


def is_enumerated(parts: BankParts) -> bool:
    """Whether the space of completions is small enough to be looked at as a whole."""
    # Which completions a stop string allows can't be counted off by ids.
    is_by_ids = not parts.loaded.text_rules.stop
    return is_by_ids and is_small(parts.loaded.vocabulary, parts.settings.trainer.max_new_tokens)


def num_blocks(parts: BankParts, prompts: EncodedPrompts, settings: ProbeSettings) -> int:
    """How many blocks :func:`probe` will give."""
    if is_enumerated(parts):
        return len(spread_evenly(len(prompts), settings.max_prompts))
    return settings.num_blocks


def coefficient(parts: BankParts, setting: TrialSpec) -> float:
    """What a nat costs beside this algorithm's advantages at a setting's beta, wherever it is paid."""
    scale, trainer = parts.settings.scale, parts.settings.trainer
    # Two scores whose mean and standard deviation are those of the reference's.
    half = scale.std / math.sqrt(2)
    scores = torch.tensor([scale.mean - half, scale.mean + half])
    factor = shape_scores(scores, trainer.reward, (scale.mean, scale.std), Moments()).factor
    price = prices(parts.settings, setting, setting.beta, factor)
    if price.loss:
        return price.loss
    return in_advantage_units(price.reward, advantage_divisor(parts.settings), factor)


def probe(
    parts: BankParts,
    row: int,
    prompts: EncodedPrompts,
    penalties: Sequence[Penalty],
    settings: ProbeSettings,
) -> Iterator[ProbeBlock]:
    """Look at the policy in ``row``, block by block.

    Raises:
        TrialFault: the proxy failed, or memory ran out.
    """
    trainer = parts.settings.trainer
    small = is_enumerated(parts)
    group = None if small else trainer.group_size
    terms = Terms(tuple(penalties), trainer.credit, trainer.kl.clip, group)
    look = Look(parts, row, prompts, terms, settings.has_reward, settings.reference)
    if small:
        indices = spread_evenly(len(prompts), settings.max_prompts)
        every = every_completion(parts.loaded, trainer.max_new_tokens)
        for index in indices:
            rows = _all_of(parts, prompts, index, every)
            yield look.at(rows, [index] * len(every[0]), 1 / len(indices))
        return
    for block in range(settings.num_blocks):
        rows, indices = _drawn(parts, row, prompts, settings, block)
        yield look.at(rows, [i for i in indices for _ in range(trainer.group_size)], None)


def _drawn(
    parts: BankParts, row: int, prompts: EncodedPrompts, settings: ProbeSettings, block: int
) -> tuple[Rollout, list[int]]:
    """Completions of the policy, and which prompts they answer, one index per group."""
    trainer, seed = parts.settings.trainer, settings.seed
    count, group = settings.prompts_per_block, trainer.group_size
    drawn = generator(seed, Purpose.AUDIT, block, row=count * group)
    indices = [int(i) for i in drawn.integers(0, len(prompts), size=count)]
    padded = prompts.pad(indices, parts.loaded.pad_id, parts.loaded.device, full_width=False)
    draws = uniforms(seed, Purpose.AUDIT, block, count * group, trainer.max_new_tokens)
    rows = rollout(
        parts.loaded,
        padded,
        parts.to_device([draws]),
        parts.sampling(group),
        (parts.stack, parts.stack.view((row,))),
    )
    return rows, indices


def _all_of(
    parts: BankParts, prompts: EncodedPrompts, index: int, every: tuple[Tensor, Tensor, Tensor]
) -> Rollout:
    """Every completion as if it had been drawn after one prompt."""
    ids_RT, mask_RT, ended_R = every
    loaded, count = parts.loaded, len(ids_RT)
    padded = prompts.pad([index], loaded.pad_id, loaded.device, full_width=False)
    return Rollout(
        prompts=PaddedPrompts(padded.ids.expand(count, -1), padded.mask.expand(count, -1)),
        ids_KNT=ids_RT[None],
        mask_KNT=mask_RT[None],
        sampler_logprobs_KNT=torch.zeros(1, *ids_RT.shape, device=loaded.device),
        ended_KN=ended_R[None],
    )
