"""A known truth in, one trial's gold by evaluation and prompt, and its measured KL, out.

What real records have and textbooks leave out: prompts that differ from each other and in how
they answer training, noise of a prompt that is carried from one evaluation to the next, heavy
tails, a run that wanders off its own law (the same for all prompts), and KL measured with error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]

KL_RISING = np.array([0.35, 0.9, 1.6, 2.5, 3.6, 5.0, 6.5, 8.0])
"""Nats per sequence at eight evaluations after step 0."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How a record departs from its truth; all in gold but for KL."""

    prompt_sd: float = 0.6
    """Of a prompt's gold at the start: the same at every evaluation."""
    answer_sd: float = 0.3
    """Of a prompt's gain, relative to the mean gain: prompts answer training more or less."""
    sample_sd: float = 0.5
    """Of a prompt's gold at one evaluation."""
    sample_rho: float = 0.3
    """Correlation of that from one evaluation to the next."""
    tail_df: float = math.inf
    """Degrees of freedom of Student's t for it (scaled to the same spread); inf: normal."""
    run_sd: float = 0.0
    """Of the run's departure from the law, shared by all prompts."""
    run_rho: float = 0.0
    """Correlation of that from one evaluation to the next."""
    kl_sd: float = 0.0
    """Relative error of the measured KL."""


@dataclass(frozen=True, slots=True)
class Record:
    """One generated trial; the first row is step 0."""

    steps_S: NDArray[np.int64]
    kl_S: Floats
    gold_SN: Floats
    true_gold_S: Floats


def rl_law(a: float, b: float) -> Callable[[Floats], Floats]:
    """Gain over d = sqrt(KL): d (a - b log d)."""
    return lambda d: d * (a - b * np.log(np.maximum(d, 1e-300)))


def best_of_n_law(a: float, b: float) -> Callable[[Floats], Floats]:
    """Gain over d = sqrt(KL): d (a - b d)."""
    return lambda d: d * (a - b * d)


def cliff(d: Floats) -> Floats:
    """A truth outside both families: gold rises at once, stays level, then falls off a cliff."""
    return 0.9 * np.tanh(3 * d) - 1.5 / (1 + np.exp(-12 * (d - 2.3)))


def make_record(
    rng: np.random.Generator,
    law: Callable[[Floats], Floats],
    noise: Noise,
    kl: Floats = KL_RISING,
    num_prompts: int = 64,
) -> Record:
    """Draw a trial with the law's gain at each KL (step 0 with KL 0 is put before them)."""
    return make_records(rng, law, noise, [kl], num_prompts)[0]


def make_records(
    rng: np.random.Generator,
    law: Callable[[Floats], Floats],
    noise: Noise,
    kls: list[Floats],
    num_prompts: int = 64,
) -> list[Record]:
    """Several trials on the same prompts from the same start: prompt effects are shared."""
    base_N = noise.prompt_sd * rng.standard_normal(num_prompts)
    answer_N = 1 + noise.answer_sd * rng.standard_normal(num_prompts)
    start_N = base_N + noise.sample_sd * _draw(rng, noise, num_prompts)
    records: list[Record] = []
    for kl in kls:
        true_kl = np.concatenate([[0.0], kl])
        gain_S = law(np.sqrt(true_kl))
        size = len(true_kl)
        own_SN = noise.sample_sd * ar1(rng, noise, noise.sample_rho, (size, num_prompts))
        run_S = noise.run_sd * _ar1_normal(rng, noise.run_rho, (size, 1))[:, 0]
        gold_SN = base_N + np.outer(gain_S, answer_N) + run_S[:, None] + own_SN
        gold_SN[0] = start_N
        factor = np.exp(noise.kl_sd * rng.standard_normal(size))
        steps = 10 * np.arange(size)
        records.append(Record(steps, true_kl * factor, gold_SN, gain_S))
    return records


def ar1(rng: np.random.Generator, noise: Noise, rho: float, shape: tuple[int, ...]) -> Floats:
    """A stationary series along the first axis with unit variance."""
    draws = _draw(rng, noise, shape)
    for i in range(1, shape[0]):
        draws[i] = rho * draws[i - 1] + math.sqrt(1 - rho**2) * draws[i]
    return draws


def _ar1_normal(rng: np.random.Generator, rho: float, shape: tuple[int, ...]) -> Floats:
    return ar1(rng, Noise(), rho, shape)


def _draw(rng: np.random.Generator, noise: Noise, shape: tuple[int, ...] | int) -> Floats:
    if math.isinf(noise.tail_df):
        return rng.standard_normal(shape)
    df = noise.tail_df
    scale = math.sqrt((df - 2) / df) if df > 2 else 1.0
    return scale * rng.standard_t(df, shape)


def binomial_floor(num_draws: int, chance: float, error: float = 0.01) -> int:
    """Hits that a true chance of ``chance`` falls below in at most ``error`` of the cases."""
    return int(stats.binom.ppf(error, num_draws, chance))


def binomial_ceiling(num_draws: int, chance: float, error: float = 0.01) -> int:
    """Hits that a true chance of ``chance`` exceeds in at most ``error`` of the cases."""
    return int(stats.binom.ppf(1 - error, num_draws, chance))
