"""What was measured of gold's noise in, the noise to plan for out: one, or a stated range where something is not known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from scipy import stats

from kltune.statistics.power import Noise

SEED_SHARES: Final = (0.0, 1.0, 3.0)
"""Standard deviation between seeds, in standard errors over prompts, where no seed was repeated.

On the built-in task five settings on 8 seeds each gave 0.7 to 2.5 at each seed's own best step and 0.7 to 6 at
a fixed one, step 20, the most without a penalty (studies/2026-11-29-kitchen/seeds.jsonl; the standard
error over 64 prompts is 0.09 gold there).
"""

PROMPT_SHARES: Final = (0.0, 0.5, 1.0)
"""Share of gold's variance between prompts that two settings don't have in common, where none were compared."""

ROUGH: Final = 1.5
"""Factor on a standard deviation from which on it is called rough."""

NAMES: Final = ("low", "middle", "high")


@dataclass(frozen=True, slots=True)
class SeedNoise:
    """What repeated seeds say; variances in gold squared."""

    seed: float
    correlation: float
    """Of two settings on the same seed."""
    prompt: float
    """Of a difference between prompts, on all seeds alike."""
    prompt_seed: float
    """Of a difference between prompts, on each seed anew; without that of samples."""
    words: str
    """How many seeds of how many settings."""
    df: int
    """Degrees of freedom of the seeds' part."""

    def factors(self) -> tuple[float, float]:
        """What the seeds' standard deviation may have to be multiplied by, 95 % (chi-squared)."""
        low, high = (math.sqrt(self.df / stats.chi2.ppf(q, self.df)) for q in (0.975, 0.025))
        return low, high


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known; variances in gold squared."""

    source: str
    """What it was measured on."""
    prompts: int
    samples: int
    """Per prompt, where ``pair`` was measured."""
    pair: float | None
    """Variance over prompts of two settings' difference at ``samples`` per prompt; none: no two settings yet."""
    num_settings: int
    """Settings behind ``pair``."""
    sample: float | None
    """Variance of the difference between single samples of a prompt; none: can't be told from prompts."""
    between: float | None = None
    """Variance of gold between prompts under one policy, where there is no ``pair``."""
    seeds: SeedNoise | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One noise to plan for."""

    name: str
    words: str
    noise: Noise

    @property
    def is_measured(self) -> bool:
        """Whether nothing in it is assumed."""
        return self.name == "measured"


def scenarios(found: Measured) -> tuple[Scenario, ...]:
    """One measured scenario, or a low, a middle and a high one.

    Raises:
        ValueError: neither two settings nor prompts under one policy were measured.
    """
    sample = found.sample or 0.0
    if found.seeds is not None:
        seeds = found.seeds
        noise = Noise(seeds.seed, seeds.correlation, seeds.prompt, seeds.prompt_seed, sample)
        return (Scenario("measured", seeds.words, noise),)
    if found.pair is None and found.between is None:
        raise ValueError("no gold by prompt was recorded: there is nothing to plan with")
    return tuple(_assumed(found, sample, level) for level in range(len(NAMES)))


def _assumed(found: Measured, sample: float, level: int) -> Scenario:
    share = SEED_SHARES[level]
    words = (
        "no noise between seeds (two runs of one setting would be equal)"
        if share == 0
        else f"two runs of one setting differ by a standard deviation of {share:g} × the standard error over prompts"
    )
    if found.pair is not None:
        pair = max(0.0, found.pair)  # settings that are equal round to just below 0
        prompt = max(0.0, pair - sample / found.samples)
        error = pair / 2 / found.prompts  # of one setting's gold, squared
    else:
        assert found.between is not None
        prompt = 2 * found.between * PROMPT_SHARES[level]
        error = (found.between + sample / 2 / found.samples) / found.prompts
        words += (
            f"; {PROMPT_SHARES[level]:.0%} of what prompts differ by is not shared by two settings"
        )
    noise = Noise(share**2 * error, 0.0, prompt, 0.0, sample)
    return Scenario(NAMES[level], words, noise)


def unknowns(found: Measured) -> tuple[str, ...]:
    """What is not known, and how to get to know it, in sentences."""
    said: list[str] = []
    if found.pair is None:
        said.append(
            "No two settings were compared yet: how far they agree on a prompt is assumed. A study of a few "
            "trials measures it."
        )
    if found.sample is None:
        said.append(
            "The samples of one prompt can't be told from the prompts (one sample per prompt, or none kept): "
            "more samples per prompt are taken to help nothing."
        )
    if found.seeds is None:
        said.append(
            "Seed variance not measured: no setting was run on two seeds. The plan is for a range: none, 1 × and "
            "3 × the standard error over prompts (the built-in task gave 0.7 to 6 ×, the most without a penalty). "
            "kltune confirm measures it."
        )
    else:
        low, high = found.seeds.factors()
        if high > ROUGH:
            said.append(
                f"Seed variance rests on few runs: its standard deviation may be {low:.2g} to {high:.2g} times what "
                "is planned for (95 %). It is an average over settings; one that collapses on some seeds rules it."
            )
    return tuple(said)
