"""KL of the step just done in, the next step's beta out. No torch, no state of its own."""

from __future__ import annotations

from kltune.spec.trial import CONTROLLER_CLIP, ControllerKind, TrialSpec


def next_beta(spec: TrialSpec, beta: float, kl: float, num_sequences: int) -> float:
    """Beta of the next step.

    Proportional: beta x (1 + clip(KL / target - 1, -0.2, 0.2) x n / horizon), n = sequences
    of the step, KL and target in the study's ``kl_unit``. Fixed: beta, whatever the KL.
    """
    if spec.controller is ControllerKind.FIXED:
        return beta
    assert spec.target_kl is not None, "a proportional controller has a target"
    assert spec.horizon is not None, "a proportional controller has a horizon"
    error = max(-CONTROLLER_CLIP, min(CONTROLLER_CLIP, kl / spec.target_kl - 1))
    return beta * (1 + error * num_sequences / spec.horizon)
