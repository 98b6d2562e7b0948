"""A step in, what of it is not finite out. Pure."""

from __future__ import annotations

import math

from kltune.metrics.record import StepMetrics
from kltune.trial.outcome import StopReason, Verdict


def judge_finite(last: StepMetrics) -> Verdict | None:
    """The end as diverged where a valid token, the loss, a gradient or the KL is not finite; else none."""
    # time/ and tokens/ metrics may rightly have nothing to say; the rest comes from the weights.
    from_weights = {
        name: value for name, value in last.values.items() if name.startswith(("kl/", "train/"))
    }
    named = {"kl/exact_token": last.kl_token, "kl/exact_seq": last.kl_seq, **from_weights}
    wrong = [f"{name} = {value}" for name, value in named.items() if not math.isfinite(value)]
    kl_is_finite = math.isfinite(last.kl_token) and math.isfinite(last.kl_seq)
    if last.is_finite and kl_is_finite:
        return None
    tokens = last.values.get("train/nonfinite_tokens", 0.0)
    if math.isfinite(tokens) and tokens > 0:
        wrong.append(f"{tokens:.0f} valid tokens")
    where = ", ".join(wrong) if wrong else "a valid token, the loss or a gradient"
    return Verdict(StopReason.DIVERGED, f"not finite at step {last.step}: {where}")
