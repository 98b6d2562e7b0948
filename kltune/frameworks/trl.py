"""Samples in, what TRL would log for them out.

Read in TRL 1.16.0: ``trainer/grpo_trainer.py`` 3098-3105 and 3259-3268, ``trainer/rloo_trainer.py``
1664-1716. PPO: ``trl.experimental.ppo`` up to 1.12.0 (gone from 1.13.0). No clamp anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kltune.frameworks.samples import NATS_SEQUENCE, NATS_TOKEN, Logged, Samples, k3

VERSION: Final = "TRL 1.16.0"
PPO_VERSION: Final = "TRL 1.12.0 (experimental PPO; none from 1.13.0)"


def grpo(samples: Samples) -> Mapping[str, Logged]:
    """GRPO with ``beta`` above 0.

    On the policy's own samples ``use_bias_correction_kl`` changes the gradient, not this number: the
    ratio to the behaviour policy is 1.
    """
    value = samples.token_mean(k3(samples.log_ratio_NT))
    return {"kl": Logged(value, NATS_TOKEN, "k3, mean over all completion tokens, no clamp")}


def rloo(samples: Samples) -> Mapping[str, Logged]:
    """RLOO with ``beta`` above 0: the metric is per token, but the reward pays the sum per completion."""
    value = samples.token_mean(samples.log_ratio_NT)
    definition = "k1, mean over all completion tokens (the reward pays the sum per completion)"
    return {"kl": Logged(value, NATS_TOKEN, definition)}


def ppo(samples: Samples, kl_estimator: str = "k1") -> Mapping[str, Logged]:
    """PPO: ``kl.sum(1).mean()`` over the response tokens.

    Raises:
        ValueError: an estimator that TRL does not have.
    """
    log_ratio_NT = samples.log_ratio_NT
    if kl_estimator not in ("k1", "k3"):
        raise ValueError(f"kl_estimator: TRL has k1 and k3 (got {kl_estimator!r})")
    values_NT = k3(log_ratio_NT) if kl_estimator == "k3" else log_ratio_NT
    definition = f"{kl_estimator}, sum over response tokens, mean over responses"
    return {"objective/kl": Logged(samples.sequence_mean(values_NT), NATS_SEQUENCE, definition)}
