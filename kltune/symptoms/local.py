"""KL by position and its quantiles by step in; breakage that the mean hides out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.symptom import Symptom, SymptomKind
from kltune.symptoms.window import Window, late

_MIN_SHARE = 0.01
"""Of all tokens, that a position must hold to count: a handful of tokens is no place."""


class Profile(Protocol):
    """KL by place, as `kltune.metrics.record.TokenProfile` has it."""

    @property
    def edges(self) -> tuple[int, ...]:
        """Positions; bucket b covers tokens edges[b] to edges[b + 1] - 1."""
        ...

    @property
    def kl(self) -> tuple[float, ...]:
        """Mean KL of each bucket, nats per token."""
        ...

    @property
    def tokens(self) -> tuple[int, ...]:
        """Valid tokens of each bucket."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFloors:
    """What counts as breakage at one place; absolute, since an early KL is tiny and all in a few places."""

    mean_token: float = 1.0
    """Nats per token; the mean over all tokens looks fine up to here."""
    bucket_token: float = 3.0
    """Nats per token that the mean at some position must exceed."""
    p99_token: float = 10.0
    """Or: nats that one token in a hundred exceeds."""
    ratio: float = 8.0
    """And the multiple of the mean that either must exceed."""


def local_kl(
    curve: Curve,
    profiles: Mapping[int, Profile],
    *,
    floors: LocalFloors = LocalFloors(),
    window: int = 5,
) -> Symptom | None:
    """KL at one place, or of one token in a hundred, that is large while the mean over all looks fine.

    ``profiles`` by step; positions that hold less than a hundredth of the tokens are left out. Judged on the
    last ``window`` steps.
    """
    mean = late(curve, Quantity.KL_TOKEN, window)
    if mean is None or mean.mean > floors.mean_token:
        return None
    kept = [profiles[s] for s in profiles if mean.first_step <= s <= mean.last_step]
    place = _worst_place(kept)
    if place is not None and place[2] > max(floors.bucket_token, floors.ratio * mean.mean):
        first, last, kl = place
        where = f"position {first}" if first == last else f"positions {first}-{last}"
        return _symptom(f"kl at {where} is {kl:.3g} nats/token", mean, {"bucket_token": kl})
    p99 = late(curve, Quantity.KL_P99_TOKEN, window)
    if p99 is not None and p99.mean > max(floors.p99_token, floors.ratio * mean.mean):
        text = f"one token in a hundred has a kl above {p99.mean:.3g} nats"
        return _symptom(text, mean, {"kl_p99_token": p99.mean})
    return None


def _worst_place(profiles: Sequence[Profile]) -> tuple[int, int, float] | None:
    """First and last position of the bucket with the highest KL, and that KL; none where there is no bucket."""
    if not profiles:
        return None
    edges = profiles[-1].edges
    same = [one for one in profiles if one.edges == edges]
    totals = [sum(one.tokens[b] for one in same) for b in range(len(edges) - 1)]
    least = max(1.0, _MIN_SHARE * sum(totals))
    found: list[tuple[float, int]] = []
    for bucket, total in enumerate(totals):
        if total >= least:
            summed = sum(one.kl[bucket] * one.tokens[bucket] for one in same)
            found.append((summed / total, bucket))
    if not found:
        return None
    kl, bucket = max(found)
    return edges[bucket], edges[bucket + 1] - 1, kl


def _symptom(text: str, mean: Window, numbers: Mapping[str, float]) -> Symptom:
    detail = (
        f"{text} while its mean is {mean.mean:.3g} nats/token "
        f"(steps {mean.first_step}-{mean.last_step})"
    )
    numbers = {**numbers, "kl_token": mean.mean}
    return Symptom(SymptomKind.LOCAL_KL, mean.first_step, mean.last_step, detail, numbers)
