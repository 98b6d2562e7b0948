"""A loaded model and prompts in, completions of one policy out, prompt by prompt: what a preview draws.

Importing this loads torch. Shapes: P prompts, N completions of each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kltune.errors import RunError, TrialFault
from kltune.launch.assemble import Ground
from kltune.launch.saying import say
from kltune.spec.trainer import TrainerSpec
from kltune.tasks.protocol import Sample, Scorer
from kltune.trainer.data import samples_of
from kltune.trainer.keyed import Purpose, uniforms
from kltune.trainer.rollout import Rollout, Sampling, rollout
from kltune.trainer.score import score_samples
from kltune.trainer.stack import TrainableStack, TrainableView

ROWS = 256
"""Completions that are decoded at once."""

_POLICY_STRIDE = 2**32
"""Between the addresses of two policies; prompts are fewer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is drawn."""

    indices: tuple[int, ...]
    """Of the select split."""
    samples: int
    """Of the reference, per prompt."""
    seed: int
    trainer: TrainerSpec


def draw_policy(
    ground: Ground,
    plan: Plan,
    count: int,
    policy: int = 0,
    adapted: tuple[TrainableStack, TrainableView] | None = None,
) -> list[Rollout]:
    """``count`` completions of each prompt, some prompts at a time; of the frozen base unless ``adapted``.

    The uniforms are keyed by ``policy``, prompt and completion: more prompts or completions leave
    the others as they are, and no two policies share any.
    """
    import torch

    loaded, length = ground.loaded, plan.trainer.max_new_tokens
    sampling = Sampling(count, length, plan.trainer.temperature, compact=True)
    at_once = max(1, ROWS // count)
    num = len(plan.indices)
    drawn: list[Rollout] = []
    for first in range(0, num, at_once):
        part = plan.indices[first : first + at_once]
        padded = ground.data.select.pad(part, loaded.pad_id, loaded.device, full_width=False)
        rows = [
            uniforms(plan.seed, Purpose.PREVIEW, policy * _POLICY_STRIDE + index, count, length)
            for index in part
        ]
        cut = torch.from_numpy(np.concatenate(rows))[None].to(loaded.device)
        drawn.append(rollout(loaded, padded, cut, sampling, adapted))
        done = first + len(part)
        if done * 4 // num > first * 4 // num:
            say(f"  {done} of {num} prompts")
    return drawn


def completions_of(ground: Ground, plan: Plan, drawn: list[Rollout], count: int) -> list[Sample]:
    """The completions as text, by prompt then completion."""
    samples: list[Sample] = []
    for piece in drawn:
        first, rows = len(samples) // count, piece.mask_KNT.shape[1]
        part = plan.indices[first : first + rows // count]
        prompts = [ground.data.select.prompts[i] for i in part for _ in range(count)]
        samples += samples_of(ground.loaded, piece, 0, prompts)
    return samples


def scores_PN(scorer: Scorer, samples: list[Sample], plan: Plan) -> NDArray[np.float64]:
    """What a scorer gives them, ``[P, N]``; NaN where it skips.

    Raises:
        RunError: it failed.
    """
    try:
        scores = score_samples(scorer, samples, slot=-1, may_skip=True)
    except TrialFault as fault:
        raise RunError(str(fault)) from fault
    return np.array(scores, dtype=np.float64).reshape(len(plan.indices), -1)
