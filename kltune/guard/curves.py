"""A trial's steps and evaluations in, what the rules of `kltune.symptoms` look at out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from kltune.metrics.record import StepMetrics
from kltune.spec.objective import ObjectiveSpec
from kltune.spec.trial import KLUnit
from kltune.symptoms.curve import Curve, Quantity
from kltune.symptoms.gold import Checkpoint
from kltune.trial.objective import EvalPoint, is_allowed

NAMES: Mapping[Quantity, str] = MappingProxyType(
    {
        Quantity.K1_TOKEN: "kl/k1_token",
        Quantity.K1_SEQ: "kl/k1_seq",
        Quantity.K1_SEQ_SE: "kl/k1_seq_se",
        Quantity.KL_P99_TOKEN: "kl/exact_p99_token",
        Quantity.PROXY_STD: "train/proxy_std",
        Quantity.ZERO_GROUPS: "train/zero_group_frac",
        Quantity.ADVANTAGE_STD: "train/advantage_std",
        Quantity.ENTROPY: "train/entropy_token",
        Quantity.LENGTH: "tokens/completion_mean",
        Quantity.TRUNCATED: "tokens/truncated_frac",
        Quantity.REPEATED: "tokens/repeated_frac",
        Quantity.LEARNING_RATE: "train/learning_rate",
    }
)
"""Where a quantity stands in ``StepMetrics.values``; KL, proxy and beta are fields of their own."""


def lean(metrics: StepMetrics) -> StepMetrics:
    """The step without what no guard looks back on; whether a step is finite is judged at once."""
    used = NAMES.values()
    return replace(metrics, values={name: v for name, v in metrics.values.items() if name in used})


def curve_of(history: Sequence[StepMetrics]) -> Curve:
    """The steps as a curve; what a step did not measure is NaN."""
    return Curve.of_rows((metrics.step, _values(metrics)) for metrics in history)


def kl_curve(points: Sequence[EvalPoint]) -> Curve:
    """KL by evaluation after step 0."""
    return Curve.of_rows(
        (p.step, {Quantity.KL_TOKEN: p.kl_token, Quantity.KL_SEQ: p.kl_seq})
        for p in points
        if p.step > 0
    )


def kl_quantity(kl_unit: KLUnit) -> Quantity:
    """The KL in ``kl_unit``."""
    return Quantity.KL_TOKEN if kl_unit is KLUnit.TOKEN else Quantity.KL_SEQ


def checkpoints_of(
    points: Sequence[EvalPoint], objective: ObjectiveSpec, kl_unit: KLUnit
) -> list[Checkpoint]:
    """The healthy evaluations after step 0, in order of steps."""
    ordered = sorted((p for p in points if p.is_healthy), key=lambda p: p.step)
    start = next((p for p in ordered if p.step == 0), None)
    return [
        Checkpoint(
            step=point.step,
            gold_by_prompt=point.gold_by_prompt,
            kl=point.kl(kl_unit),
            is_allowed=is_allowed(point, objective, kl_unit, start),
        )
        for point in ordered
        if point.step > 0
    ]


def _values(metrics: StepMetrics) -> dict[Quantity, float]:
    found = {
        quantity: metrics.values[name] for quantity, name in NAMES.items() if name in metrics.values
    }
    return {
        **found,
        Quantity.KL_TOKEN: metrics.kl_token,
        Quantity.KL_SEQ: metrics.kl_seq,
        Quantity.PROXY: metrics.proxy,
        Quantity.BETA: metrics.beta,
    }
