"""A run's KL as it was logged in, its unit with the reason out, and the same KL in the other unit. Nothing is guessed silently."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kltune.diagnose.known import SEQ, TOKEN
from kltune.diagnose.runlog import Reading
from kltune.spec.trial import KLUnit
from kltune.symptoms.curve import Quantity

Series = Mapping[int, float]
"""Value by step."""

TOKEN_CEILING: Final = 15.0
"""Nats per token: a mean is below about the log of the vocabulary (10 to 12), whatever happens."""
_TOKEN_HIGH: Final = 0.5
"""Nats per token: up to here a KL of long completions is one per token (kl-reference.md §4)."""
_SEQ_LOW: Final = 1.0
_SEQ_HIGH: Final = 100.0
"""Nats per sequence: between the two a KL of long completions is one per sequence."""
_LONG: Final = 100.0
"""Tokens: below, the two units lie too near for a size to tell them apart."""

_OTHER: Final = {
    Quantity.KL_TOKEN: Quantity.KL_SEQ,
    Quantity.KL_SEQ: Quantity.KL_TOKEN,
    Quantity.K1_TOKEN: Quantity.K1_SEQ,
    Quantity.K1_SEQ: Quantity.K1_TOKEN,
}
_IS_TOKEN: Final = (Quantity.KL_TOKEN, Quantity.K1_TOKEN)


@dataclass(frozen=True, slots=True)
class Decision:
    """In which unit a KL is."""

    unit: KLUnit | None
    """None: it can't be told."""
    why: str
    """For people."""
    is_certain: bool


def infer(values: Sequence[float], mean_tokens: float | None) -> Decision:
    """Tell the unit of an unknown trainer's KL by its size, where one of the two is impossible or far less likely.

    ``mean_tokens``: mean completion length, none where it is not known. A size that fits both
    units is not decided.
    """
    finite = [abs(value) for value in values if math.isfinite(value)]
    if not finite:
        return Decision(None, "it has no finite value", is_certain=False)
    peak = max(finite)
    size = f"it reaches {peak:.3g}"
    if peak > TOKEN_CEILING:
        return Decision(
            KLUnit.SEQUENCE,
            f"by its size: {size}, more than a mean over tokens can be (about {TOKEN_CEILING:g} nats/token)",
            is_certain=False,
        )
    if mean_tokens is None:
        return Decision(
            None, f"{size}, and the mean completion length is not known", is_certain=False
        )
    length = f"with {mean_tokens:.4g} tokens a completion"
    if mean_tokens < _LONG:
        return Decision(
            None,
            f"{size}, which {length} fits both nats/token and nats/sequence",
            is_certain=False,
        )
    if peak <= _TOKEN_HIGH:
        return Decision(
            KLUnit.TOKEN,
            f"by its size: {size}, and {length} that is {peak * mean_tokens:.3g} nats/sequence "
            f"(as nats/sequence it would be only {peak / mean_tokens:.2g} nats/token)",
            is_certain=False,
        )
    if _SEQ_LOW <= peak <= _SEQ_HIGH:
        return Decision(
            KLUnit.SEQUENCE,
            f"by its size: {size}, and {length} that is {peak / mean_tokens:.3g} nats/token "
            f"(as nats/token it would be {peak * mean_tokens:.3g} nats/sequence)",
            is_certain=False,
        )
    return Decision(
        None, f"{size}, which lies between the two units even {length}", is_certain=False
    )


def told(reading: Reading, unit: KLUnit) -> tuple[Reading, str]:
    """The reading under the unit that the user gave, and what to say of it (empty: it agrees)."""
    name = TOKEN if unit is KLUnit.TOKEN else SEQ
    why = f"as --kl-unit {unit.value} says"
    is_k1 = reading.quantity in (Quantity.K1_TOKEN, Quantity.K1_SEQ)
    by_unit = {
        KLUnit.TOKEN: Quantity.K1_TOKEN if is_k1 else Quantity.KL_TOKEN,
        KLUnit.SEQUENCE: Quantity.K1_SEQ if is_k1 else Quantity.KL_SEQ,
    }
    changed = replace(reading, quantity=by_unit[unit], unit=name, why=why, is_certain=True)
    if reading.unit in ("", name):
        return changed, ""
    said = (
        f"--kl-unit {unit.value} counts: {reading.name} is read as {name}, though by its definition it is in "
        f"{reading.unit} ({reading.why})"
    )
    return changed, said


def other_unit(
    reading: Reading, series: Series, length: Series, mean_tokens: float | None, source: str
) -> tuple[Reading, dict[int, float]] | None:
    """The same KL in the other unit, at each step whose mean completion length is known; none where none is.

    ``mean_tokens`` stands in at steps without a logged length; ``source`` names the length for people.
    """
    target = _OTHER[reading.quantity]
    converted: dict[int, float] = {}
    used_fixed = False
    for step, value in series.items():
        tokens = length.get(step)
        if tokens is None or not math.isfinite(tokens):
            tokens, used_fixed = mean_tokens, used_fixed or mean_tokens is not None
        if tokens is not None and tokens > 0:
            is_token = reading.quantity in _IS_TOKEN
            converted[step] = value * tokens if is_token else value / tokens
    if not converted:
        return None
    sign = "x" if reading.quantity in _IS_TOKEN else "/"
    by = source if source else f"{mean_tokens:g} tokens"
    fixed = f" ({mean_tokens:g} tokens where none was logged)" if used_fixed and source else ""
    why = f"{reading.name} {sign} {by}{fixed}"
    unit = SEQ if target in (Quantity.KL_SEQ, Quantity.K1_SEQ) else TOKEN
    return replace(reading, quantity=target, unit=unit, why=why), converted
