"""The reason of a guard in, its field in the spec and a few words for people out."""

from __future__ import annotations

from collections.abc import Mapping

from kltune.trial.outcome import StopReason

FIELD_OF: Mapping[StopReason, str] = {
    StopReason.KL_LIMIT: "kl",
    StopReason.KL_JUMP: "jump",
    StopReason.NEGATIVE_KL: "negative_kl",
    StopReason.STALLED: "stalled",
    StopReason.PSEUDO_EXPLOSION: "pseudo_explosion",
    StopReason.GOLD_DROP: "gold_drop",
    StopReason.ENTROPY_COLLAPSE: "entropy",
    StopReason.REPETITION: "repetition",
    StopReason.LENGTH_COLLAPSE: "length",
    StopReason.LENGTH_GROWTH: "length",
    StopReason.TRUNCATION: "truncation",
    StopReason.LOCAL_KL: "local_kl",
    StopReason.PROXY_SPREAD: "proxy_spread",
    StopReason.WALL_CLOCK: "wall",
}
"""Under ``guards`` in the spec. What is not finite has no field: it always ends its trial."""

STOPPED: Mapping[StopReason, str] = {
    StopReason.KL_LIMIT: "stopped at the KL limit",
    StopReason.KL_JUMP: "stopped at a jump of the KL",
    StopReason.NEGATIVE_KL: "stopped at a negative KL",
    StopReason.STALLED: "stopped as stalled",
    StopReason.PSEUDO_EXPLOSION: "stopped at a pseudo-explosion",
    StopReason.GOLD_DROP: "stopped past the peak of gold",
    StopReason.ENTROPY_COLLAPSE: "stopped as its entropy collapsed",
    StopReason.REPETITION: "stopped as it repeated itself",
    StopReason.LENGTH_COLLAPSE: "stopped as its length collapsed",
    StopReason.LENGTH_GROWTH: "stopped as its length grew",
    StopReason.TRUNCATION: "stopped as completions were cut",
    StopReason.LOCAL_KL: "stopped as its KL broke in places",
    StopReason.PROXY_SPREAD: "stopped as the proxy's spread was gone",
    StopReason.WALL_CLOCK: "stopped by the clock",
    StopReason.DIVERGED: "diverged",
}
"""Endings by a guard, as a reader of the report finds them."""
