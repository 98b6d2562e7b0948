"""The proxies that are compared, with the arms and draws of their runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

DRAWS = range(300, 308)
"""Seeds of the proxy's comparisons, noise and fit: a draw is the unit of replication. Fixed before the first run."""
NO_KL = "no KL"
PRICED = "k1-reward 0.15"


@dataclass(frozen=True)
class Proxy:
    """How a proxy is learned."""

    comparisons: int = 1600
    """Pairs of the reference's completions that gold judges."""
    noise: float = 0.2
    """Share of labels that are flipped."""
    layers: int = 3
    """Of the base that the reward model keeps; the base has 3."""

    @property
    def name(self) -> str:
        """The level's name."""
        return f"{self.comparisons} comparisons, noise {self.noise:g}, {self.layers} layers"


COMPARISONS = tuple(Proxy(comparisons=number) for number in (100, 400, 1600, 6400))
NOISE = tuple(Proxy(noise=noise) for noise in (0.0, 0.2, 0.4))
LAYERS = tuple(Proxy(layers=layers) for layers in (1, 3))
LEVELS = tuple(dict.fromkeys((*COMPARISONS, *NOISE, *LAYERS)))
AXES: dict[str, tuple[tuple[Proxy, ...], Callable[[Proxy], float], str]] = {
    "comparisons": (COMPARISONS, lambda p: math.log(p.comparisons / 100, 4), "four times as many"),
    "noise": (NOISE, lambda p: p.noise / 0.2, "20 points more"),
    "layers": (LAYERS, lambda p: (p.layers - 1) / 2, "3 layers instead of 1"),
}
"""By axis: the levels along it, their place, and what one step of that is."""
SMALL_LEVELS = (Proxy(100, 0.4), Proxy(800, 0.0))
"""Scaled down for the tests."""
SHIPPED = "shipped"
"""The proxy that the task comes with, of which there is one draw."""
PENALTY_ARMS = ("k1-reward 0.05", "k1-reward 0.15", "k1-reward 0.5")
"""Run under the shipped proxy by the study of penalties."""
PENALTY_SETTINGS = 16
"""Settings that the study of penalties compares with no KL. Gold at the best stop and at the end is its question, so
its family holds here too: one contrast, one verdict."""


def block_name(proxy: Proxy, draw: int) -> str:
    """Of the runs of one draw of one level."""
    return f"c{proxy.comparisons}-n{proxy.noise:g}-l{proxy.layers}-d{draw}"


def level_of(block: str) -> str:
    """A block's level, without the draw."""
    return block.rsplit("-d", 1)[0]
