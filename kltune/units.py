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


def loss_coefficient(beta: float, beta_unit: str, penalty: str | None, sigma_r: float) -> float:
    """Factor of the KL where the penalty pays it: in the reward for ``*-reward``, else in the loss.

    In the loss the KL stands beside advantages that were divided by the group's standard
    deviation, so a beta in reward units is divided by ``sigma_r``, the group standard
    deviation of the proxy under the reference (design.md §3). In the reward, before the
    group is normalised, both units are raw reward per nat and beta counts as it stands.
    Raises `ValueError` for an unknown unit, or where ``sigma_r`` is needed and not above 0.
    """
    if beta == 0:
        return 0.0
    return beta if _is_same(beta_unit, penalty) else beta / _sigma(sigma_r)


def reward_beta(coefficient: float, beta_unit: str, penalty: str | None, sigma_r: float) -> float:
    """Give beta in ``beta_unit`` from the factor of the KL where the penalty pays it.

    The inverse of `loss_coefficient`: a recipe that was published beside normalised
    advantages (TRL's ``beta``, verl's ``kl_loss_coef``) is worth coefficient x sigma_r in
    reward units. Raises `ValueError` as `loss_coefficient` does.
    """
    if coefficient == 0:
        return 0.0
    return coefficient if _is_same(beta_unit, penalty) else coefficient * _sigma(sigma_r)


def _is_same(beta_unit: str, penalty: str | None) -> bool:
    if beta_unit not in ("reward", "native"):
        raise ValueError(f"beta_unit: must be reward or native (got {beta_unit!r})")
    return beta_unit == "native" or (penalty is not None and penalty.endswith("-reward"))


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
