"""Samples in, what OpenRLHF would log for them out.

Read in OpenRLHF 0.11.0, commit 3c3be623: ``models/utils.py`` compute_approx_kl 64-95,
``trainer/ppo_utils/experience_maker.py`` (in the reward), ``trainer/ray/ppo_actor.py`` 319-337 (in the loss).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from kltune.frameworks.samples import NATS_TOKEN, Floats, Logged, Samples, k2, k3

VERSION: Final = "OpenRLHF 0.11.0 (3c3be623)"

CLAMP: Final = 10.0
"""Of every estimate, nats; beyond it the value is cut and the gradient is 0."""


def in_reward(samples: Samples, estimator: str = "k1") -> Mapping[str, Logged]:
    """Without ``--algo.kl.use_loss``: the mean over responses of their token means.

    Raises:
        ValueError: an estimator that OpenRLHF does not have.
    """
    value = samples.mean_of_token_means(_estimate(samples.log_ratio_NT, estimator))
    how = "mean over responses of the mean over their tokens"
    return {"kl": Logged(value, NATS_TOKEN, f"{estimator} clamped to ±{CLAMP:g}, {how}")}


def in_loss(samples: Samples, estimator: str = "k3") -> Mapping[str, Logged]:
    """With ``--algo.kl.use_loss``: the mean over all tokens, whatever the policy loss does.

    Raises:
        ValueError: an estimator that OpenRLHF does not have.
    """
    value = samples.token_mean(_estimate(samples.log_ratio_NT, estimator))
    how = "mean over all response tokens"
    return {"kl": Logged(value, NATS_TOKEN, f"{estimator} clamped to ±{CLAMP:g}, {how}")}


def _estimate(log_ratio_NT: Floats, estimator: str) -> Floats:
    match estimator:
        case "k1":
            values_NT = log_ratio_NT
        case "k2":
            values_NT = k2(log_ratio_NT)
        case "k3":
            values_NT = k3(log_ratio_NT)
        case _:
            raise ValueError(f"OpenRLHF knows k1, k2, k3 (got {estimator!r})")
    return np.clip(values_NT, -CLAMP, CLAMP)
