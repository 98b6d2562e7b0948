"""A bank with a trial in slot 0 in; completions of its policy, and how the trainer scores them, out.

What the probes share, so that nothing is drawn twice. Shapes: K = 1 slot, N completions, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kltune.spec.penalty import Penalty
from kltune.spec.study import StudySpec
from kltune.spec.trial import TrialSpec
from kltune.tasks.protocol import Prompt, Sample
from kltune.trainer.bank import Bank
from kltune.trainer.batch import Batch
from kltune.trainer.data import samples_of, spread_evenly
from kltune.trainer.encode import PaddedPrompts, pad_left
from kltune.trainer.keyed import Purpose, prompt_indices, uniforms
from kltune.trainer.logprobs import Logprobs
from kltune.trainer.measure import measure
from kltune.trainer.rollout import Rollout, rollout

LEAST = 32
"""Completions that scorers are judged on at least."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Completions of slot 0's policy on train prompts."""

    prompts: tuple[Prompt, ...]
    """One per completion."""
    prompt_ids: tuple[tuple[int, ...], ...]
    """Unpadded, one per completion."""
    rollout: Rollout
    samples: tuple[Sample, ...]
    """The same as scorers see them."""
    group_size: int

    def __len__(self) -> int:
        """Completions."""
        return len(self.samples)

    def few(self, count: int) -> list[int]:
        """Up to ``count`` completions of lengths as different as they come."""
        by_length = sorted(range(len(self)), key=lambda i: (len(self.samples[i].token_ids), i))
        return [by_length[i] for i in spread_evenly_to_the_end(len(by_length), count)]


def spread_evenly_to_the_end(count: int, wanted: int) -> list[int]:
    """``wanted`` indices below ``count`` (or all), evenly spaced, the first and the last among them."""
    wanted = min(count, wanted)
    return [i * (count - 1) // max(1, wanted - 1) for i in range(wanted)]


def start_setting(spec: StudySpec) -> TrialSpec:
    """A setting in the middle of the search: what a probe's step trains with."""
    betas = [beta for beta in spec.search.beta.numbers() if beta > 0]
    beta = math.exp(sum(map(math.log, betas)) / len(betas)) if betas else 0.0
    rates = (
        spec.search.learning_rate.numbers() if spec.search.learning_rate is not None else ()
    ) or (spec.trainer.learning_rate,)
    return TrialSpec(
        beta=beta,
        penalty=Penalty(str(spec.search.penalty.values()[0])) if beta else None,
        learning_rate=math.exp(sum(map(math.log, rates)) / len(rates)),
        seed=spec.seed,
    )


def draw(bank: Bank, seed: int, count: int | None = None) -> Drawn:
    """About ``count`` completions (by default those of a step, 32 or more) by the policy in slot 0, whole groups."""
    trainer, train = bank.parts.settings.trainer, bank.parts.data.train
    wanted = max(LEAST, trainer.rows) if count is None else count
    group = trainer.group_size
    indices = spread_evenly(len(train), max(1, math.ceil(wanted / group)))
    draws = uniforms(seed, Purpose.AUDIT, 0, len(indices) * group, trainer.max_new_tokens)
    return _drawn(bank, indices, torch.from_numpy(draws))


def draw_step(bank: Bank, seed: int) -> Drawn:
    """The completions that the first training step of a trial of this seed draws."""
    trainer, train = bank.parts.settings.trainer, bank.parts.data.train
    indices = prompt_indices(seed, 0, len(train), trainer.prompts)
    draws = uniforms(seed, Purpose.ROLLOUT, 0, trainer.rows, trainer.max_new_tokens)
    return _drawn(bank, indices, torch.from_numpy(draws))


def draw_after(bank: Bank, prompt_ids: Sequence[Sequence[int]]) -> Rollout:
    """One completion of each of any prompts' ids, by the policy in slot 0."""
    parts = bank.parts
    draws = uniforms(0, Purpose.AUDIT, 1, len(prompt_ids), parts.settings.trainer.max_new_tokens)
    width = None if parts.settings.compact else parts.data.train.width
    padded = pad_left(prompt_ids, parts.loaded.pad_id, parts.loaded.device, width)
    return _rolled_out(bank, padded, torch.from_numpy(draws), 1)


def _drawn(bank: Bank, indices: list[int], uniforms_NT: Tensor) -> Drawn:
    parts = bank.parts
    loaded, train = parts.loaded, parts.data.train
    group = parts.settings.trainer.group_size
    full_width = not parts.settings.compact
    padded = train.pad(indices, loaded.pad_id, loaded.device, full_width=full_width)
    drawn = _rolled_out(bank, padded, uniforms_NT, group)
    rows = [i for i in indices for _ in range(group)]
    prompts = tuple(train.prompts[i] for i in rows)
    return Drawn(
        prompts=prompts,
        prompt_ids=tuple(train.ids[i] for i in rows),
        rollout=drawn,
        samples=tuple(samples_of(loaded, drawn, 0, prompts)),
        group_size=group,
    )


def _rolled_out(bank: Bank, padded: PaddedPrompts, uniforms_NT: Tensor, group_size: int) -> Rollout:
    parts = bank.parts
    sampling = parts.sampling(group_size)
    uniforms_KNT = uniforms_NT[None].to(parts.loaded.device)
    adapted = parts.stack, parts.stack.view((0,))
    return rollout(parts.loaded, padded, uniforms_KNT, sampling, adapted)


def trainer_logprobs(bank: Bank, rows: Rollout) -> Logprobs:
    """Policy of slot 0 and reference at every token, by the very pass that a training step measures with."""
    parts = bank.parts
    num_rows = rows.ids_KNT.shape[1]
    unscored_KN = torch.zeros((1, num_rows), device=parts.loaded.device)
    batch = Batch(slots=(0,), states=(), rollout=rows, proxy_KN=unscored_KN, shaped=())
    view, largest = parts.stack.view((0,)), parts.micro_batch.size
    return measure(parts, batch, view, parts.scoring, largest).logprobs


def rows_of(rows: Rollout, indices: list[int]) -> Rollout:
    """Some completions of a one-slot rollout, as they lie in it."""
    at = torch.tensor(indices, device=rows.ids_KNT.device)
    return Rollout(
        PaddedPrompts(rows.prompts.ids[at], rows.prompts.mask[at]),
        rows.ids_KNT[:, at],
        rows.mask_KNT[:, at],
        rows.sampler_logprobs_KNT[:, at],
        rows.ended_KN[:, at],
    )
