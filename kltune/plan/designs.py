"""A noise, a price of a run and a gold difference in; the cheapest design that sees it out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

from kltune.plan.noise import Scenario
from kltune.statistics.power import ALPHA, Design, Noise, detectable, power, standard_error

SAMPLES: Final = (1, 2, 4, 8, 16)
SEEDS: Final = (3, 4, 5, 6, 8, 10, 12, 16, 20, 32, 64)
MOST_PROMPTS: Final = 4096


@dataclass(frozen=True, slots=True)
class Price:
    """What one run of one setting costs."""

    train: float
    """Seconds of its training steps; completions where nothing was timed."""
    judged: float
    """The same for one completion of one evaluation."""
    evaluations: int
    """Of one run."""
    is_timed: bool
    words: str
    """Where the seconds come from."""

    def of(self, design: Design) -> float:
        """All runs of a design, one after another."""
        per_evaluation = design.prompts * design.samples * self.judged
        return design.settings * design.seeds * (self.train + self.evaluations * per_evaluation)


@dataclass(frozen=True, slots=True)
class Purpose:
    """A comparison that is planned for."""

    name: str
    words: str
    settings: int
    comparisons: int
    available: int
    """Prompts that its split holds."""


@dataclass(frozen=True, slots=True)
class Need:
    """What seeing a difference takes."""

    purpose: str
    scenario: str
    difference: float
    """Gold."""
    design: Design | None
    """None: no design that was looked at sees it."""
    cost: float | None
    """Seconds, or completions where nothing was timed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The smallest difference that a study sees."""

    scenario: str
    comparisons: int
    difference: float
    """Gold."""


def purposes(
    trials: int, baselines: int, available: tuple[int, int], top: int = 3
) -> tuple[Purpose, ...]:
    """The confirmation of a sweep's best, and the sweep itself on several seeds.

    ``available``: select prompts and test prompts that there are.
    """
    select, test = available
    again = top + max(1, baselines)
    return (
        Purpose("confirm", f"the best {top} and the baselines", again, again - 1, test),
        Purpose("sweep", f"all {trials} settings of the sweep", trials, max(1, trials - 1), select),
    )


def cheapest(
    difference: float, scenario: Scenario, purpose: Purpose, price: Price, wanted: float
) -> Need:
    """The design of least cost that sees ``difference`` with chance ``wanted``.

    Prompts beyond those that there are count only where no number of seeds and samples does without.
    """
    found: Design | None = None
    for most in (purpose.available, MOST_PROMPTS):
        designs = sorted(_designs(purpose, most), key=price.of)
        found = next((d for d in designs if _sees(difference, scenario.noise, d, wanted)), None)
        if found is not None:
            break
    cost = None if found is None else price.of(found)
    return Need(purpose.name, scenario.name, difference, found, cost)


def _designs(purpose: Purpose, most: int) -> tuple[Design, ...]:
    prompts = sorted({min(most, 16 * 2**i) for i in range(9)})
    return tuple(
        Design(s, p, k, purpose.comparisons, purpose.settings)
        for s in SEEDS
        for p in prompts
        for k in SAMPLES
    )


def _sees(difference: float, noise: Noise, design: Design, wanted: float) -> bool:
    # Were the noise known, fewer standard errors would do: most designs are ruled out by that alone.
    normal = NormalDist()
    fewest = normal.inv_cdf(1 - ALPHA / (2 * design.comparisons)) + normal.inv_cdf(wanted)
    if difference < fewest * standard_error(noise, design):
        return False
    return power(difference, noise, design) >= wanted


def seen(
    found: tuple[Scenario, ...], prompts: int, samples: int, trials: int, wanted: float
) -> tuple[Seen, ...]:
    """What a sweep with one run a setting sees: two settings named beforehand, and the best of all.

    With one seed its noise can't be estimated from the runs; it counts as known.
    """
    alone = Design(1, prompts, samples)
    family = replace(alone, comparisons=max(1, trials), settings=max(2, trials))
    return tuple(
        Seen(s.name, design.comparisons, detectable(s.noise, design, wanted, ALPHA))
        for s in found
        for design in ((alone, family) if trials > 1 else (alone,))
    )


def round_differences(around: float) -> tuple[float, ...]:
    """A difference, and a half, a quarter and a tenth of it, to one digit."""
    return tuple(float(f"{around * share:.1g}") for share in (1, 0.5, 0.25, 0.1))
