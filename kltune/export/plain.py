"""A setting and sizes in; everything that is known of it as one JSON object, in every unit, out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kltune.errors import SpecError
from kltune.export import convert
from kltune.export.cautions import cautions, limit_of
from kltune.export.convert import Gradient, Number
from kltune.export.setting import Winner
from kltune.export.target import Target

SCHEMA = 1


def plain(winner: Winner, target: Target) -> dict[str, Any]:
    """Units are in the names; what can't be known is None."""
    beta = winner.setting.beta
    in_token, in_seq = (
        convert.target_per_token(winner, target),
        convert.target_per_sequence(winner, target),
    )
    limit = limit_of(winner)
    both = (None, None) if limit is None else winner.both_units(limit, target.mean_tokens)
    has_horizon = winner.setting.horizon is not None
    return {
        "schema": SCHEMA,
        **winner.as_json(),
        "stop": _stop(winner, target),
        "gradient": convert.gradient(winner).value,
        "converted": {
            "completions_per_step": target.batch,
            "completions_per_prompt": target.group,
            "mean_tokens": target.mean_tokens,
            "max_new_tokens": target.max_new_tokens,
            "raw_reward_per_nat_of_sequence_kl": _value(winner, target, beta, in_loss=False),
            "advantage_units_per_nat": _value(winner, target, beta, in_loss=True),
            "final_raw_reward_per_nat_of_sequence_kl": _value(
                winner, target, winner.final_beta, in_loss=False
            ),
            "final_advantage_units_per_nat": _value(
                winner, target, winner.final_beta, in_loss=True
            ),
            "target_kl_nats_per_token": _given(in_token),
            "target_kl_nats_per_sequence": _given(in_seq),
            "horizon_sequences": convert.horizon(winner, target).value if has_horizon else None,
            "kl_limit_nats_per_token": both[0],
            "kl_limit_nats_per_sequence": both[1],
        },
        "warnings": cautions(winner, target),
    }


def _stop(winner: Winner, target: Target) -> dict[str, Any] | None:
    """With the KL carried over to the target's mean length, as the limits are."""
    if winner.stop is None:
        return None
    token, seq = winner.stop.kl(winner.kl_unit, target.mean_tokens)
    carried = {"kl_token": token, "kl_seq": seq, "mean_tokens": target.mean_tokens}
    return {**asdict(winner.stop), **carried}


def _value(winner: Winner, target: Target, beta: float, *, in_loss: bool) -> float | None:
    if convert.gradient(winner) is Gradient.NONE:
        return 0.0
    ask = convert.coefficient if in_loss else convert.price
    try:
        return ask(winner, target, beta).value
    except SpecError:  # the scale is not on record
        return None


def _given(found: Number | None) -> float | None:
    return None if found is None else found.value
