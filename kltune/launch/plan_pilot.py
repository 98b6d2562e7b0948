"""A loaded spec in, gold's noise under the reference and the time of a run out: seconds of sampling, nothing is kept.

The heavy half of ``kltune plan`` where there is no study: importing this loads torch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kltune.errors import SpecError
from kltune.launch.assemble import Ground, build_bank, find_inputs, load_ground
from kltune.launch.plan import Known, evaluations_of
from kltune.launch.stopwatch import step_seconds
from kltune.metrics.record import EvalMetrics, RewardScale
from kltune.plan.designs import Price
from kltune.plan.noise import Measured
from kltune.spec.load import LoadedSpec
from kltune.spec.study import StudySpec
from kltune.spec.task import LearnedProxySpec
from kltune.study.space import setting_of
from kltune.tasks.protocol import Sample
from kltune.trial.words import number

SECONDS = 15.0
"""That the larger evaluation may take, by the pace of the small one."""

SMALL = 8
"""Prompts of the one that finds the pace."""

MOST = 64
"""Prompts of the larger one."""

SAMPLES = 2
"""Per prompt at least: one can't be told from the prompt."""


@dataclass(frozen=True, slots=True)
class _NoProxy:
    """Scores in place of a proxy that has yet to be learned: only gold and time are looked at."""

    name: str = "stand-in"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return [float(sum(sample.token_ids) % 97) for sample in samples]


def sample_reference(loaded: LoadedSpec) -> Known:
    """Judge the reference on some select prompts, and time a step.

    Raises:
        SpecError: prompts, scorers or a model that can't be used.
        TrialFault: gold failed.
    """
    spec = loaded.spec
    inputs = find_inputs(loaded)
    is_learned = isinstance(inputs.task.proxy, LearnedProxySpec)
    ground = load_ground(spec, inputs, None, _NoProxy() if is_learned else None)
    there = len(ground.data.select)
    samples = max(SAMPLES, spec.evaluate.samples)
    judged, seconds = _judge(ground, spec, min(SMALL, there), samples)
    fitting = int(SECONDS / max(seconds / len(judged.gold_by_prompt), 1e-6))
    prompts = min(there, MOST, fitting)
    if prompts > len(judged.gold_by_prompt):
        judged, seconds = _judge(ground, spec, prompts, samples)
    bank = build_bank(ground, spec, _UNIT, 1)
    step_s = step_seconds(bank, setting_of({"beta": 0.0}, spec))
    drawn = len(judged.gold_by_prompt) * samples
    words = (
        f"{number(step_s, 2)} s a step, {number(seconds, 2)} s an evaluation of {drawn} completions, timed just "
        "now in one process; one run after another"
    )
    price = Price(spec.trainer.steps * step_s, seconds / drawn, evaluations_of(spec), True, words)
    return Known(_noise(judged, samples), price)


_UNIT = RewardScale(sigma=1.0, std=1.0, mean=0.0, num_groups=1, mean_tokens=1.0)
"""A step takes as long whatever sigma_R is."""


def _judge(
    ground: Ground, spec: StudySpec, prompts: int, samples: int
) -> tuple[EvalMetrics, float]:
    """One evaluation of the reference with every first sample kept, and its seconds."""
    evaluate = spec.evaluate.model_copy(
        update={"prompts": prompts, "samples": samples, "keep": prompts}
    )
    bank = build_bank(ground, spec.model_copy(update={"evaluate": evaluate}), _UNIT, 1)
    bank.admit(0, 0, setting_of({"beta": 0.0}, spec), None)
    start = time.perf_counter()
    (judged,) = bank.evaluate((0,))
    return judged, time.perf_counter() - start


def _noise(judged: EvalMetrics, samples: int) -> Measured:
    """Variance of the reference's gold between prompts and between samples of one.

    Raises:
        SpecError: gold is the same everywhere, or there is one prompt.
    """
    mean_P = np.array(judged.gold_by_prompt)
    if len(mean_P) < 2 or not mean_P.var() > 0:
        raise SpecError(
            f"task.gold: gives {len(mean_P)} prompt(s) of the reference the same gold, so nothing is known of its "
            "noise; run a study of a few trials and plan with it"
        )
    first_P = np.array([kept.gold for kept in judged.samples])
    sample = 2 * float(((first_P - mean_P) ** 2).mean()) * samples / (samples - 1)
    between = max(0.0, float(mean_P.var(ddof=1)) - sample / 2 / samples)
    source = f"the reference on {len(mean_P)} select prompts × {samples} samples (no study yet)"
    return Measured(source, len(mean_P), samples, None, 1, sample, between)
