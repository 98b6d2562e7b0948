"""Samples in, what NeMo-RL would log for them out.

Read in NeMo-RL, commit 7ea279ab: ``nemo_rl/algorithms/loss/loss_functions.py`` (ClippedPGLossFn,
metric ``kl_penalty``: the KL part of the loss divided by its coefficient) and ``calculate_kl``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from kltune.frameworks.samples import NATS_TOKEN, Logged, Samples, k2, k3

VERSION: Final = "NeMo-RL main (7ea279ab)"

INPUT_CLAMP: Final = 20.0
"""Default of kl_input_clamp_value: of the log-ratio, nats."""

OUTPUT_CLAMP: Final = 10.0
"""Default of kl_output_clamp_value: of the estimate, nats."""


def in_loss(
    samples: Samples,
    kl_type: str = "k3",
    input_clamp: float | None = INPUT_CLAMP,
    output_clamp: float | None = OUTPUT_CLAMP,
    *,
    token_level_loss: bool = True,
) -> Mapping[str, Logged]:
    """``reference_policy_kl_penalty`` above 0; the weight that carries the gradient from v0.7.0 on is 1 here.

    ``token_level_loss``: mean over all tokens; off: mean over responses of their token means.

    Raises:
        ValueError: a type that NeMo-RL does not have.
    """
    log_ratio_NT = samples.log_ratio_NT
    if input_clamp is not None:
        log_ratio_NT = np.clip(log_ratio_NT, -input_clamp, input_clamp)
    match kl_type:
        case "k1":
            values_NT = log_ratio_NT
        case "k2":
            values_NT = k2(log_ratio_NT)
        case "k3":
            values_NT = k3(log_ratio_NT)
        case _:
            raise ValueError(f"reference_policy_kl_type: k1, k2, k3 (got {kl_type!r})")
    if output_clamp is not None:
        values_NT = np.clip(values_NT, -output_clamp, output_clamp)
    reduce = samples.token_mean if token_level_loss else samples.mean_of_token_means
    how = "mean over all tokens" if token_level_loss else "mean over responses of their token means"
    clamps = f"log-ratio within {_within(input_clamp)}, clamped to {_within(output_clamp)}"
    return {"kl_penalty": Logged(reduce(values_NT), NATS_TOKEN, f"{kl_type}, {clamps}, {how}")}


def _within(limit: float | None) -> str:
    return "no bound" if limit is None else f"±{limit:g}"
