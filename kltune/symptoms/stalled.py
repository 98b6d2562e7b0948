"""KL and proxy by step in; a run that learns nothing, with the cause that the numbers speak for, out."""

from __future__ import annotations

import math

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.symptom import Symptom, SymptomKind
from kltune.symptoms.window import Window, early_and_late, late

BETA_TOO_LARGE = "beta too large"
NO_SPREAD = "no group spread"
ZERO_ADVANTAGES = "zero advantages"
RATE_TOO_SMALL = "learning rate too small"
LOOSENS = 0.9
"""A controller that took beta down to this share of itself within the window is about to end the stall."""
SHORT_OF_OPTIMUM = 4.0
"""A run of few steps stays below the KL of its optimum, by about this factor: beta is still what holds it."""


def stalled(
    curve: Curve,
    *,
    kl_seq: float = 0.1,
    sigmas: float = 2.0,
    window: int = 10,
    beta_in_reward: bool = True,
) -> Symptom | None:
    """KL near 0 and a flat proxy over the last ``window`` steps; ``2 * window`` steps must be known.

    Near 0: the mean is below ``kl_seq`` nats per sequence (from nats per token and mean length where only
    those are logged). Flat: its mean rose by fewer than ``sigmas`` standard errors since the first
    ``window`` steps. ``beta_in_reward``: BETA is in raw reward per nat of sequence KL; else it multiplies
    a KL beside advantages of spread 1.

    ``cause``: no group spread, zero advantages, beta too large (the KL of the optimum,
    spread² / (2 beta²) to leading order of the tilted policy, is itself near 0), else learning rate too small.
    A beta that is too large but falling is no stall: its controller has seen it.
    """
    kl = _kl_seq(curve, window)
    proxy = early_and_late(curve, Quantity.PROXY, window)
    if kl is None or proxy is None or kl.mean >= kl_seq:
        return None
    start, now = proxy
    rise, se = now.mean - start.mean, math.hypot(start.se, now.se)
    if rise > sigmas * se:
        return None
    cause, why = _cause(curve, window, kl_seq, beta_in_reward=beta_in_reward)
    if cause == BETA_TOO_LARGE and _is_loosening(curve, window):
        return None
    steps = f"steps {kl.first_step}-{kl.last_step}"
    detail = (
        f"kl {kl.mean:.2g} nats/sequence (near 0 is below {kl_seq:g}) and proxy {start.mean:.3g} at the start, "
        f"{now.mean:.3g} over {steps} (rise {rise:.2g} ± {se:.2g}): nothing is learned; {cause}: {why}"
    )
    numbers = {"kl_seq": kl.mean, "proxy_start": start.mean, "proxy": now.mean, "proxy_rise_se": se}
    return Symptom(SymptomKind.STALLED, kl.first_step, kl.last_step, detail, numbers, cause)


def _kl_seq(curve: Curve, window: int) -> Window | None:
    found = late(curve, Quantity.KL_SEQ, window)
    if found is not None:
        return found
    token, length = late(curve, Quantity.KL_TOKEN, window), late(curve, Quantity.LENGTH, window)
    if token is None or length is None:
        return None
    return Window(token.first_step, token.last_step, token.mean * length.mean, math.nan)


def _is_loosening(curve: Curve, window: int) -> bool:
    """Whether beta fell clearly over the last ``window`` steps."""
    beta = [value for _, value in curve.known(Quantity.BETA)[-window:]]
    return bool(beta) and beta[-1] < LOOSENS * beta[0]


def _cause(curve: Curve, window: int, kl_seq: float, *, beta_in_reward: bool) -> tuple[str, str]:
    """The cause and the numbers that speak for it."""
    equal = late(curve, Quantity.ZERO_GROUPS, window)
    if equal is not None and equal.mean > 0.9:
        return NO_SPREAD, f"all completions score the same in {equal.mean:.0%} of the groups"
    spread = late(curve, Quantity.PROXY_STD, window)
    if spread is not None and spread.mean == 0:
        return NO_SPREAD, "the proxy has the same value for all completions"
    advantage = late(curve, Quantity.ADVANTAGE_STD, window)
    if advantage is not None and advantage.mean < 1e-6:
        return ZERO_ADVANTAGES, f"advantages spread by {advantage.mean:.1g}"
    beta = late(curve, Quantity.BETA, window)
    scale = 1.0 if not beta_in_reward else math.nan if spread is None else spread.mean
    if beta is not None and beta.mean > 0 and math.isfinite(scale):
        best = (scale / beta.mean) ** 2 / 2
        if best <= SHORT_OF_OPTIMUM * kl_seq:
            why = f"at beta {beta.mean:.3g} the optimum itself is {best:.1g} nats/sequence away"
            return BETA_TOO_LARGE, why
    rate = late(curve, Quantity.LEARNING_RATE, window)
    shown = "" if rate is None else f" ({rate.mean:.3g})"
    held = "beta is 0" if beta is not None and beta.mean == 0 else "beta does not explain it"
    return (
        RATE_TOO_SMALL,
        f"rewards differ within groups and {held}, so the updates are too small{shown}",
    )
