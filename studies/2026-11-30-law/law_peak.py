"""Where gold is highest: the KL of RL's peak, the n of best-of-n's."""

from __future__ import annotations

from typing import Any

import numpy as np
from law_intervals import factor_of_draws, mean_of_draws
from law_runs import Floats, Runs

from kltune.statistics.arms import stop_place, when_stopped


def peak_place(own: Runs) -> dict[str, Any]:
    """``step`` where the mean curve is highest; ``kl`` where each run is, geometric mean over draws.

    The mean curve's peak is one of a dozen evaluations and jumps between them as draws are drawn anew: a bootstrap
    of 8 draws covers too little where the top is flat. One peak a run has an interval by t; a run's peak is that of its own noise too.
    """
    return {
        "step": int(own.step_C[stop_place(own.gain_SC)]),
        "kl": factor_of_draws(highest_kl(own)),
    }


def highest_kl(own: Runs) -> Floats:
    """KL of each draw at its own highest evaluation after the start, nats per sequence: S."""
    place_S = 1 + np.argmax(own.gain_SC[:, 1:], axis=1)
    return own.kl_SC[np.arange(len(place_S)), place_S]


def peak_of_n(bon: Runs) -> dict[str, Any]:
    """Each draw at the n that is best for the others; n and KL of the mean curve's highest."""
    place = stop_place(bon.gain_SC)
    kl, n = float(bon.kl_SC[0, place]), int(bon.step_C[place])
    return {"gain": mean_of_draws(when_stopped(bon.gain_SC)), "kl": kl, "n": n}
