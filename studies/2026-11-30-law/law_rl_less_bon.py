"""What RL without a penalty has more than best-of-n by the same proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from law_equal_kl import off_at
from law_form import fitted_law
from law_intervals import mean_if_enough, mean_of_draws
from law_peak import peak_of_n
from law_runs import Runs

from kltune.statistics.arms import when_stopped
from kltune.statistics.law import LawForm

BANDS = {"0.25 to 1.5": (0.25, 1.5), "1.5 to 3.8": (1.5, 3.8)}
"""Nats per sequence; the last n of best-of-n has 3.86."""


def best_of_n(bon: Runs, own: Runs, rows: int) -> dict[str, Any]:
    """Gain over the start of the best of n, and what RL has more at equal KL, at RL's own evaluations.

    Draw by draw, so that the intervals hold the noise of both. Where a draw of one has nothing to do with a draw of
    the other (the shipped proxy: completions, seeds), the pairs are arbitrary and the interval is that of two samples;
    scaled down, there are fewer draws of completions than seeds, and the first ones are paired.
    ``rl_less_bon`` and ``rl_less_bon_at_peak``: the three differences of one proxy hold at once; those in ``of_all``
    for ``rows`` proxies together.
    """
    one, num = len(BANDS) + 1, min(len(bon.gold_SC), len(own.gold_SC))
    bon, own = bon.first(num), own.first(num)
    more = {name: -off_at(bon, own, *band) for name, band in BANDS.items()}
    at_peak_S = when_stopped(own.gain_SC) - when_stopped(bon.gain_SC)
    return {
        "peak": peak_of_n(bon),
        "law": fitted_law(bon, LawForm.BEST_OF_N),
        "rl_less_bon": {name: mean_if_enough(more_S, one) for name, more_S in more.items()},
        "rl_less_bon_at_peak": mean_of_draws(at_peak_S, one),
        "of_all": {
            **{name: mean_if_enough(more_S, one * rows) for name, more_S in more.items()},
            "at_peak": mean_of_draws(at_peak_S, one * rows),
        },
    }


def rl_above_bon(levels: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """By band: learned levels where RL is told above or below best-of-n, the intervals of a level held at once."""
    found: dict[str, Any] = {}
    for name in BANDS:
        cells = {level: own["best_of_n"]["rl_less_bon"][name] for level, own in levels.items()}
        found[name] = {
            "above": [level for level, one in cells.items() if (one.get("low") or 0) > 0],
            "below": [level for level, one in cells.items() if (one.get("high") or 0) < 0],
        }
    return found
