"""A plan as `kltune plan` would make it, with an easy, a hard and a hopeless difference."""

from __future__ import annotations

from dataclasses import replace

from kltune.plan.designs import Price, cheapest, purposes, seen
from kltune.plan.noise import Measured, scenarios, unknowns
from kltune.plan.result import PlanResult

_FOUND = Measured("20 feasible trials of kitchen", 64, 2, pair=0.5, num_settings=20, sample=0.6)
_PRICE = Price(16.0, 0.002, 9, is_timed=True, words="0.2 s a step in kitchen")


def _plan(price: Price) -> PlanResult:
    asked, noises = purposes(24, 3, (78, 256)), scenarios(_FOUND)
    return PlanResult(
        name="kitchen",
        source=_FOUND.source,
        power=0.8,
        prompts=64,
        samples=2,
        trials=24,
        scenarios=noises,
        purposes=asked,
        price=price,
        seen=seen(noises, 64, 2, 24, 0.8),
        needs=tuple(
            cheapest(difference, noise, purpose, price, 0.8)
            for purpose in asked
            for difference in (0.5, 0.05, 1e-4)
            for noise in noises
        ),
        unknowns=unknowns(_FOUND),
    )


PLAN = _plan(_PRICE)
UNTIMED = _plan(replace(_PRICE, train=5120.0, judged=1.0, is_timed=False, words="not timed"))
