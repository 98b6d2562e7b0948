"""Gold of some settings on the same seeds and prompts in, the noise of a difference between two of them out.

Shapes: K settings, S seeds, P prompts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kltune.plan.noise import SeedNoise

Array = NDArray[np.float64]


def seed_noise(gold_KSP: Array, sample: float, pair: float | None) -> SeedNoise | None:
    """Part the noise of repeated runs; none where fewer than 2 seeds or prompts say anything.

    ``sample``: variance of a difference that the samples of one prompt bring at the recorded number
    of samples. ``pair``: variance over prompts of two settings' difference on one seed, which one
    setting alone can't say. Components by the analysis of variance of a crossed layout (as in
    `kltune.statistics.power`); what would be negative is 0.
    """
    settings, seeds, prompts = gold_KSP.shape
    if min(settings, seeds - 1, prompts - 1) < 1 or not np.isfinite(gold_KSP).all():
        return None
    by_seed, _, rest = np.mean([_components(gold_SP) for gold_SP in gold_KSP], axis=0)
    seed = max(0.0, float(by_seed))
    said = f"{settings} setting{'s' * (settings > 1)} on {seeds} seeds"
    if settings == 1:
        both = 2 * float(rest)
        prompt = max(0.0, (both if pair is None else pair) - both)
        words = f"{said}; what two settings share on a seed is not measured (taken as nothing)"
        return SeedNoise(seed, 0.0, prompt, max(0.0, both - sample), words, seeds - 1)
    # The interaction with the setting, pooled; a difference of two settings has twice its variance.
    own = gold_KSP - gold_KSP.mean(axis=0)
    scale = 2 * settings / (settings - 1)
    seed_pair, prompt_pair, rest_pair = (
        float(x) * scale for x in np.mean([_components(own_SP) for own_SP in own], axis=0)
    )
    shared = 0.0 if seed <= 0 else 1 - max(0.0, seed_pair) / (2 * seed)
    correlation = min(1.0, max(-1.0, shared))
    words = f"{said}; of the same seed two settings' gold correlates {correlation:.2f}"
    parts = (max(0.0, prompt_pair), max(0.0, rest_pair - sample))
    return SeedNoise(seed, correlation, *parts, words, (seeds - 1) * (settings - 1))


def _components(gold_SP: Array) -> tuple[float, float, float]:
    """Variance by seeds, by prompts and of the rest; not cut at 0."""
    seeds, prompts = gold_SP.shape
    by_seed, by_prompt = gold_SP.mean(axis=1, keepdims=True), gold_SP.mean(axis=0)
    rest_SP = gold_SP - by_seed - by_prompt + gold_SP.mean()
    rest = float((rest_SP**2).sum()) / ((seeds - 1) * (prompts - 1))
    return (
        float(by_seed.var(ddof=1)) - rest / prompts,
        float(by_prompt.var(ddof=1)) - rest / seeds,
        rest,
    )
