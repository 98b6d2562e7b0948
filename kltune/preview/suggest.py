"""Curves and their reading in, ranges for beta and target_kl out, and how many samples would see further."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kltune.preview.result import Curve, Needed, Reading, Suggestion, Verdict
from kltune.statistics.best_of_n import n_for_bound
from kltune.statistics.tilt import MIN_EFFECTIVE, samples_needed

BELOW = 0.5
"""The search begins at this share of the KL at which gold peaks (lower end of its interval)."""

ABOVE = 5.0
"""And ends at this multiple of its upper end. RL peaks at a higher KL than best-of-n from the same reward: about
4 to 9 times as high in Gao et al. 2023 (figure 1: 4 against 18-20 nats, 10 against 70-90)."""

SHORT_TRIAL = 4.0
"""Factor on the lowest beta. A short trial ends before it has gone as far as its beta allows, so the beta whose
*optimum* lies at a KL is too high to get there; a rule of thumb, no measurement."""


SHOWN_KL = (1.0, 2.0, 4.0)
"""KLs that people ask about, nats per sequence."""


@dataclass(frozen=True, slots=True)
class Search:
    """What of the spec bears on the ranges."""

    kl_unit: str
    kl_limit: float | None
    """The objective's, in ``kl_unit``."""


def suggest(reading: Reading, tilt: Curve, best_of_n: Curve, search: Search) -> Suggestion:
    """Ranges around the KL at which gold peaks; none where no KL would help, or none can be told."""
    if reading.verdict in (Verdict.FALLS, Verdict.UNCLEAR):
        why = (
            "gold falls as the proxy rises, so no KL setting makes this proxy useful: none is suggested"
            if reading.verdict is Verdict.FALLS
            else "gold can't be told to rise or fall with this proxy, so no range is suggested"
        )
        return Suggestion(None, None, search.kl_unit, (why,))
    low, high, reasons = _kl_range(reading)
    by_token = search.kl_unit == "token"
    tokens = _tokens_at(reading, tilt, best_of_n)
    target_low, target_high = (kl / tokens if by_token else kl for kl in (low, high))
    limit = search.kl_limit
    if limit is not None and target_low < limit < target_high:
        target_high = limit
        reasons.append("target_kl ends at objective.kl_limit")
    elif limit is not None and limit <= target_low:
        reasons.append(
            f"objective.kl_limit {limit:g} nats/{search.kl_unit} is below all of this: it forbids the KL where gold peaks"
        )
    beta_low = beta_at(low_of(high), tilt, best_of_n) / SHORT_TRIAL
    beta_high = beta_at(low, tilt, best_of_n)
    reasons.append(
        f"beta: from the beta whose optimum lies at the lowest of these KLs, down to 1/{SHORT_TRIAL:g} of the one at the "
        "highest, since short trials end before their optimum"
    )
    return Suggestion(
        beta=_rounded(beta_low, beta_high),
        target_kl=_rounded(target_low, target_high),
        kl_unit=search.kl_unit,
        reasons=tuple(reasons),
    )


def low_of(kl_seq: float) -> float:
    """A KL above 0, so that it has a logarithm."""
    return max(kl_seq, 1e-6)


def _kl_range(reading: Reading) -> tuple[float, float, list[str]]:
    """In nats per sequence."""
    peak = reading.peak_kl_seq
    if reading.verdict is Verdict.RISES:
        low, high = reading.seen_kl_seq, reading.seen_kl_seq
        words = f"gold still rises where the sample ends, at {high:.2g} nats/sequence"
    else:
        low = peak.value if peak.low is None else peak.low
        high = reading.seen_kl_seq if peak.high is None else peak.high
        words = f"gold peaks at {low:.2g} to {high:.2g} nats/sequence"
    reasons = [
        f"target_kl: from {BELOW:g} to {ABOVE:g} times where {words}; upwards by so much since RL peaks at a higher KL than "
        "best-of-n does (4 to 9 times as high in Gao et al. 2023)"
    ]
    return max(low * BELOW, 1e-3), max(high * ABOVE, 2e-3), reasons


def beta_at(kl_seq: float, tilt: Curve, best_of_n: Curve) -> float:
    """The beta whose optimum lies at this KL, in reward per nat of sequence KL.

    From the tilt as far as it reaches. Beyond, by what best-of-n gains per nat, since along the
    optimum d proxy / d KL is beta; beyond that, the last of these.
    """
    known = [(p.kl_seq, p.knob) for p in tilt.points if p.knob is not None and p.kl_seq > 0]
    reach = tilt.seen_kl_seq
    for before, after in zip(best_of_n.points, best_of_n.points[1:], strict=False):
        middle = (before.kl_seq + after.kl_seq) / 2
        slope = (after.proxy.value - before.proxy.value) / (after.kl_seq - before.kl_seq)
        if middle > reach and slope > 0:
            lowest = known[-1][1] if known else math.inf
            known.append((middle, min(slope, lowest)))
    if not known:
        return math.nan
    kls, betas = np.log([kl for kl, _ in known]), np.log([beta for _, beta in known])
    return float(np.exp(np.interp(math.log(kl_seq), kls, betas)))


def needs(tilt: Curve, num_samples: int) -> tuple[Needed, ...]:
    """Completions per prompt that would show the curves further than the tilt reaches."""
    last = tilt.points[-1]
    seen = last.kl_seq
    effective = last.effective or MIN_EFFECTIVE
    # Where nothing was seen: normal rewards lose two per nat.
    loss, at = (math.log(num_samples / effective), seen) if seen > 0 else (2.0, 1.0)
    return tuple(
        Needed(kl, samples_needed(kl, loss, at), n_for_bound(kl)) for kl in SHOWN_KL if kl > seen
    )


def _tokens_at(reading: Reading, tilt: Curve, best_of_n: Curve) -> float:
    """Tokens per completion where gold peaks."""
    if reading.peak_kl_token > 0:
        return reading.peak_kl_seq.value / reading.peak_kl_token
    curve = tilt if reading.kind == "tilt" and len(tilt.points) > 1 else best_of_n
    last = curve.points[-1]
    return last.kl_seq / last.kl_token


def _rounded(low: float, high: float) -> tuple[float, float]:
    """Two significant digits, the lower end down and the upper one up."""

    def to(value: float, rounding: str) -> float:
        scale = 10 ** (1 - math.floor(math.log10(value)))
        moved = value * scale
        return (math.floor(moved + 1e-9) if rounding == "down" else math.ceil(moved - 1e-9)) / scale

    return to(low, "down"), to(high, "up")
