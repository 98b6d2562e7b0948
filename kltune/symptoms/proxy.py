"""Spread of the proxy by step in; a proxy that no longer tells completions apart out."""

from __future__ import annotations

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.symptom import Symptom, SymptomKind
from kltune.symptoms.window import early_and_late, late


def proxy_spread(
    curve: Curve, *, zero_groups: float = 0.9, share: float = 0.05, window: int = 5
) -> Symptom | None:
    """The proxy's spread is gone over the last ``window`` steps.

    Gone: in ``zero_groups`` of the groups all completions score the same, or the standard deviation is
    below ``share`` of that of the first ``window`` steps.
    """
    equal = late(curve, Quantity.ZERO_GROUPS, window)
    if equal is not None and equal.mean >= zero_groups:
        detail = (
            f"all completions score the same in {equal.mean:.0%} of the groups "
            f"(steps {equal.first_step}-{equal.last_step}): they teach nothing"
        )
        numbers = {"zero_groups": equal.mean}
        return Symptom(SymptomKind.PROXY_SPREAD, equal.first_step, equal.last_step, detail, numbers)
    found = early_and_late(curve, Quantity.PROXY_STD, window)
    if found is None:
        return None
    start, now = found
    if now.mean > 0 and now.mean >= share * start.mean:
        return None
    detail = (
        f"the proxy spreads by {now.mean:.2g} over steps {now.first_step}-{now.last_step}, "
        f"{start.mean:.2g} at the start"
    )
    numbers = {"proxy_std": now.mean, "proxy_std_start": start.mean}
    return Symptom(SymptomKind.PROXY_SPREAD, now.first_step, now.last_step, detail, numbers)
