"""Numbers with a unit in, the same numbers in another unit out: the only conversions there are.

KL is in nats, per token or per sequence (completion). beta is in raw proxy reward per nat
of sequence KL (``reward``) or what the framework of the penalty would take (``native``).
Units and penalties are given by the names that the spec uses.
"""

from __future__ import annotations

import math


def kl_per_sequence(kl_token: float, mean_tokens: float) -> float:
    """Nats per sequence from nats per token, at ``mean_tokens`` valid tokens per completion."""
    return kl_token * _above_zero("mean completion length in tokens", mean_tokens)


def kl_per_token(kl_seq: float, mean_tokens: float) -> float:
    """Nats per token from nats per sequence, at ``mean_tokens`` valid tokens per completion."""
    return kl_seq / _above_zero("mean completion length in tokens", mean_tokens)


def advantage_scale(
    algorithm: str, sigma_r: float, std_r: float, *, is_whitened: bool = True
) -> float | None:
    """What an algorithm divides its advantages by, in raw proxy reward, as measured under the reference.

    GRPO: ``sigma_r``, the standard deviation within a group; REINFORCE++ and PPO: ``std_r``,
    that over all completions (PPO's at the start, when its values are 0; a critic that knows
    the returns makes its advantages smaller). None for RLOO and Dr.GRPO, which divide by
    nothing, and for a PPO that is not whitened.
    """
    if algorithm == "ppo" and not is_whitened:
        return None
    return {"grpo": sigma_r, "reinforce": std_r, "ppo": std_r}.get(algorithm)


def baseline_share(algorithm: str, group_size: int) -> float:
    """Share of the reward's expected gradient that the baseline leaves.

    Dr.GRPO's group mean holds a completion's own reward, so (G - 1) / G of it is left; a KL in
    the loss keeps all of its own, and a price in raw reward has to be scaled alike. RLOO leaves
    its own reward out of the baseline: 1. So it is here for the others: GRPO's division by
    each group's own spread changes the price by more than that and by no fixed factor
    (a coefficient of beta / sigma_R is its convention, not an identity).
    """
    return (group_size - 1) / group_size if algorithm == "dr-grpo" else 1.0


def reward_price(beta: float, beta_unit: str, reward_factor: float = 1.0) -> float:
    """Shaped reward per nat, where the KL is paid in the reward.

    A beta in reward units is raw reward per nat, and a raw reward is worth
    ``reward_factor`` of a shaped one; a native beta counts as it stands.
    """
    return beta if _is_native(beta_unit) else beta * reward_factor


def in_advantage_units(price: float, scale: float | None, reward_factor: float = 1.0) -> float:
    """Give a price in shaped reward per nat beside advantages that were divided by ``scale`` (raw reward).

    Raises `ValueError` where ``scale`` is needed and not above 0.
    """
    if price == 0 or scale is None:
        return price
    return price / (_sigma(scale) * reward_factor)


def loss_coefficient(
    beta: float, beta_unit: str, scale: float | None, reward_factor: float = 1.0
) -> float:
    """Factor of a KL that stands in the loss, beside the advantages: beta / sigma_R under GRPO.

    ``scale``: `advantage_scale`. A native beta counts as it stands. Raises `ValueError` for
    an unknown unit, or where ``scale`` is needed and not above 0.
    """
    if _is_native(beta_unit):
        return beta
    return in_advantage_units(reward_price(beta, beta_unit, reward_factor), scale, reward_factor)


def beta_of_coefficient(coefficient: float, beta_unit: str, scale: float | None) -> float:
    """Give beta in ``beta_unit`` from a loss coefficient: the inverse of `loss_coefficient`, unshaped.

    A recipe that was published beside normalised advantages (TRL's ``beta``, verl's
    ``kl_loss_coef``) is worth coefficient x sigma_R in reward units. Raises `ValueError` as
    `loss_coefficient` does.
    """
    if coefficient == 0 or scale is None or _is_native(beta_unit):
        return coefficient
    return coefficient * _sigma(scale)


def _is_native(beta_unit: str) -> bool:
    if beta_unit not in ("reward", "native"):
        raise ValueError(f"beta_unit: must be reward or native (got {beta_unit!r})")
    return beta_unit == "native"


def _sigma(sigma_r: float) -> float:
    if not (math.isfinite(sigma_r) and sigma_r > 0):
        raise ValueError(
            f"sigma_R = {sigma_r}: the proxy does not vary within any group of the reference's "
            "completions, so beta in reward units has no scale; use a proxy that tells "
            "completions of one prompt apart, or beta_unit: native"
        )
    return sigma_r


def _above_zero(what: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{what}: must be above 0 (got {value})")
    return value
