"""Samples in, what verl would log for them out.

Read in verl 0.10.0.dev, commit 1dda039b9: ``trainer/ppo/core_algos.py`` kl_penalty 2187,
kl_penalty_forward 2215, agg_loss 1140; ``workers/utils/losses.py`` 132-142 (in the loss);
``trainer/ppo/ray_trainer.py`` apply_kl_penalty 78-115 (in the reward).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from kltune.frameworks.samples import (
    NATS_SEQUENCE,
    NATS_TOKEN,
    Floats,
    Logged,
    Samples,
    k2,
    k3,
)

VERSION: Final = "verl 0.10.0.dev (1dda039b9)"

LOG_RATIO_CLAMP: Final = 20.0
"""Of reference minus policy, nats, before k3."""

K3_CLAMP: Final = 10.0
"""Of k3, nats, after it."""

_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kl": "k1",
        "k1": "k1",
        "abs": "abs",
        "mse": "k2",
        "k2": "k2",
        "low_var_kl": "k3",
        "k3": "k3",
    }
)


def in_loss(
    samples: Samples,
    kl_loss_type: str = "low_var_kl",
    loss_agg_mode: str = "token-mean",
    loss_scale_factor: float | None = None,
) -> Mapping[str, Logged]:
    """``use_kl_loss: true``: logged with the aggregation of the loss, without its coefficient.

    ``loss_scale_factor``: tokens; seq-mean-token-sum-norm divides by it, by default by the padded width.

    Raises:
        ValueError: a type or a mode that verl does not have.
    """
    values_NT, words = _estimate(samples.log_ratio_NT, kl_loss_type)
    scale = samples.mask_NT.shape[1] if loss_scale_factor is None else loss_scale_factor
    constant = f"nats/sequence / {scale:g}"
    modes = {
        "token-mean": (samples.token_mean, NATS_TOKEN, "mean over all response tokens"),
        "seq-mean-token-mean": (
            samples.mean_of_token_means,
            NATS_TOKEN,
            "mean over responses of the mean over their tokens",
        ),
        "seq-mean-token-sum": (
            samples.sequence_mean,
            NATS_SEQUENCE,
            "sum over tokens, mean over responses",
        ),
        "seq-mean-token-sum-norm": (
            lambda values: samples.sequence_mean(values) / scale,
            constant,
            f"sum over tokens / {scale:g}, mean over responses",
        ),
    }
    if loss_agg_mode not in modes:
        raise ValueError(f"loss_agg_mode: {', '.join(modes)} (got {loss_agg_mode!r})")
    reduce, unit, how = modes[loss_agg_mode]
    return {"actor/kl_loss": Logged(reduce(values_NT), unit, f"{words}, {how}")}


def in_reward(samples: Samples, kl_penalty: str = "kl") -> Mapping[str, Logged]:
    """``use_kl_in_reward: true``: what the adaptive controller compares with ``target_kl``.

    Raises:
        ValueError: a type that verl does not have.
    """
    values_NT, words = _estimate(samples.log_ratio_NT, kl_penalty)
    definition = f"{words}, mean over responses of the mean over their tokens"
    value = samples.mean_of_token_means(values_NT)
    return {"actor/reward_kl_penalty": Logged(value, NATS_TOKEN, definition)}


def _estimate(log_ratio_NT: Floats, name: str) -> tuple[Floats, str]:
    """A trailing + changes the gradient only, so it is dropped here."""
    estimator = _NAMES.get(name.removesuffix("+"))
    match estimator:
        case "k1":
            return log_ratio_NT, "k1"
        case "abs":
            return np.abs(log_ratio_NT), "|k1|"
        case "k2":
            return k2(log_ratio_NT), "k2"
        case "k3":
            clamped_NT = k3(np.clip(log_ratio_NT, -LOG_RATIO_CLAMP, LOG_RATIO_CLAMP))
            words = f"k3 of log-ratios within ±{LOG_RATIO_CLAMP:g}, clamped to ±{K3_CLAMP:g}"
            return np.clip(clamped_NT, -K3_CLAMP, K3_CLAMP), words
        case _:
            raise ValueError(f"verl knows {', '.join(_NAMES)} (got {name!r})")
