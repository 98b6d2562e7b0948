"""Curves and their reading in, ranges for beta and target_kl out, and how many samples would see further."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kltune.preview.curves import Scored
from kltune.preview.ends import Found, Range, Take, fitted
from kltune.preview.result import Curve, Needed, Reading, Scorer, Suggestion, Verdict
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

LOWEST = 1e-3
"""No target is lower, nats per sequence, so that it has a logarithm."""

SHOWN_KL = (1.0, 2.0, 4.0)
"""KLs that people ask about, nats per sequence."""


@dataclass(frozen=True, slots=True)
class Search:
    """What of the spec bears on the ranges."""

    kl_unit: str
    kl_limit: float | None
    """The objective's, in ``kl_unit``."""
    beta: Range | None = None
    """The spec's, in reward per nat of sequence KL; None: it has no range in that unit."""
    target_kl: Range | None = None
    """The spec's, in ``kl_unit``; None: it has no range."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the ranges follow from."""

    reading: Reading
    tilt: Curve
    best_of_n: Curve
    is_train_better: bool = False
    """Proxy and gold agree clearly better on train prompts, so RL goes further than the curves say."""


def no_range(flat: tuple[Scorer, ...], search: Search) -> Suggestion:
    """Nothing, where a scorer never varies."""
    return Suggestion(None, None, search.kl_unit, (f"{flat_words(flat)}; no range is suggested",))


def flat_words(flat: tuple[Scorer, ...]) -> str:
    """What it means that a scorer gives every completion of a prompt the same score."""
    words = {"proxy": "there is nothing to learn", "gold": "there is nothing to judge by"}
    return "; ".join(
        f"{'the proxy' if name == 'proxy' else name} gives every completion of a prompt the same score: {words[name]}"
        for name in flat
    )


def suggest(seen: Seen, search: Search) -> Suggestion:
    """Ranges around the KL at which gold peaks; none where no KL would help, or none can be told.

    Only ends on whose side something was seen are moved: a sample that ends before gold turns knows
    nothing of higher KLs, so the upper end of target_kl and the lower one of beta stay the spec's.
    """
    reading = seen.reading
    if reading.verdict in (Verdict.FALLS, Verdict.UNCLEAR):
        why = (
            "gold falls as the proxy rises, so no KL setting makes this proxy useful: none is suggested"
            if reading.verdict is Verdict.FALLS
            else "gold can't be told to rise or fall with this proxy, so no range is suggested"
        )
        return Suggestion(None, None, search.kl_unit, (why,))
    near, far = _kls(reading)
    takes = _takes(seen, far)
    tokens = _tokens_at(reading, seen.tilt, seen.best_of_n)
    per = tokens if search.kl_unit == "token" else 1.0
    target_low, target_high = near / per, None if far is None else far / per
    reasons = _kl_reasons(seen, takes)
    limit = search.kl_limit
    if limit is not None and target_high is not None and target_low < limit < target_high:
        target_high = limit
        reasons.append("target_kl ends at objective.kl_limit")
    elif limit is not None and limit <= target_low:
        reasons.append(
            f"objective.kl_limit {limit:g} nats/{search.kl_unit} is below all of this: it forbids the KL where gold "
            + ("peaks" if reading.verdict is Verdict.TURNS else "still rises")
        )
    target = Found("target_kl", _down(target_low), _up(target_high), takes)
    target_kl, said = fitted(target, search.target_kl)
    reasons += said
    beta_high = beta_at(near, seen.tilt, seen.best_of_n)
    beta_low = None if far is None else beta_at(far, seen.tilt, seen.best_of_n) / SHORT_TRIAL
    reasons.append(_beta_reason(takes))
    beta, said = fitted(
        Found("beta", _down(beta_low), _up(beta_high), (takes[1], takes[0])), search.beta
    )
    return Suggestion(beta, target_kl, search.kl_unit, (*reasons, *said))


def _kls(reading: Reading) -> tuple[float, float | None]:
    """From where to where to search, nats per sequence; no upper end where gold was not seen to turn before it."""
    peak = reading.peak_kl_seq
    near = max((peak.value if peak.low is None else peak.low) * BELOW, LOWEST)
    if reading.verdict is not Verdict.TURNS or peak.high is None:
        return near, None
    return near, max(peak.high * ABOVE, 2 * LOWEST)


def _takes(seen: Seen, far: float | None) -> tuple[Take, Take]:
    """What becomes of the end at low KL, and of the one at high KL."""
    turns = seen.reading.verdict is Verdict.TURNS
    near_take = Take.AS_SEEN if turns else Take.NARROW
    if far is None:
        return near_take, Take.KEEP
    return near_take, Take.WIDEN if seen.is_train_better else Take.AS_SEEN


def _kl_reasons(seen: Seen, takes: tuple[Take, Take]) -> list[str]:
    peak = seen.reading.peak_kl_seq
    low = peak.value if peak.low is None else peak.low
    if seen.reading.verdict is not Verdict.TURNS:
        start = f"target_kl: from {BELOW:g} times {low:.2g} nats/sequence, up to which gold rises"
    elif takes[1] is Take.KEEP:
        start = f"target_kl: from {BELOW:g} times {low:.2g} nats/sequence, where gold peaks at the earliest"
    else:
        start = (
            f"target_kl: from {BELOW:g} to {ABOVE:g} times where gold peaks at {low:.2g} to {peak.high:.2g} nats/sequence; "
            "upwards by so much since RL peaks at a higher KL than best-of-n does (4 to 9 times as high in Gao et al. 2023)"
        )
    reasons = [start]
    if seen.is_train_better:
        reasons.append(
            "proxy and gold agree clearly better on the train prompts, so RL goes further than this forecast: the end at "
            "high KL (upper of target_kl, lower of beta) is not narrowed"
        )
    return reasons


def _beta_reason(takes: tuple[Take, Take]) -> str:
    start = "the beta whose optimum lies at the lowest of these KLs"
    if takes[1] is Take.KEEP:
        return f"beta: up to {start}"
    return f"beta: from {start}, down to 1/{SHORT_TRIAL:g} of the one at the highest, since short trials end before their optimum"


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


def needs(tilt: Curve, best_of_n: Curve, scored: Scored) -> tuple[Needed, ...]:
    """Completions per prompt that would show the curves further; none where that can't be told.

    Not for completions that other policies drew too: how far those reach hangs on the policies, and their
    number is not one of the reference's completions.
    """
    num = scored.num_reference
    if scored.log_density_PN is not None:
        return ()
    last = tilt.points[-1]
    effective = last.effective or MIN_EFFECTIVE
    # Where nothing was seen: normal rewards lose two per nat.
    loss, at = (math.log(num / effective), last.kl_seq) if last.kl_seq > 0 else (2.0, 1.0)
    found: list[Needed] = []
    for kl in SHOWN_KL:
        count = samples_needed(kl, loss, at)
        # As many as there are, or fewer, have been seen not to do.
        if kl > last.kl_seq and count > num:
            more = None if best_of_n.seen_kl_seq >= kl else n_for_bound(kl)
            found.append(Needed(kl, count, more))
    return tuple(found)


def _tokens_at(reading: Reading, tilt: Curve, best_of_n: Curve) -> float:
    """Tokens per completion where gold peaks."""
    if reading.peak_kl_token > 0:
        return reading.peak_kl_seq.value / reading.peak_kl_token
    curve = tilt if reading.kind == "tilt" and len(tilt.points) > 1 else best_of_n
    last = curve.points[-1]
    return last.kl_seq / last.kl_token


def _down(value: float | None) -> float | None:
    """Two significant digits, never more than the value."""
    return _two_digits(value, lambda scaled: math.floor(scaled + 1e-9))


def _up(value: float | None) -> float | None:
    """Two significant digits, never less than the value."""
    return _two_digits(value, lambda scaled: math.ceil(scaled - 1e-9))


def _two_digits(value: float | None, whole: Callable[[float], int]) -> float | None:
    if value is None or math.isnan(value):
        return None
    scale = 10 ** (1 - math.floor(math.log10(value)))
    return whole(value * scale) / scale
