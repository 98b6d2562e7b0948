"""What is known of a KL's name and a run's settings in, what the KL is in this run out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kltune.diagnose.facts import LOSS_MODE, LOSS_TYPE, REWARD_TYPE
from kltune.diagnose.known import SEQ, Known
from kltune.symptoms.curve import Quantity

_ESTIMATORS: Final = {
    **dict.fromkeys(("kl", "k1"), "k1"),
    **dict.fromkeys(("mse", "k2"), "k2"),
    **dict.fromkeys(("low_var_kl", "k3", "low_var_kl+", "k3+"), "k3"),
}
_EITHER: Final = ("trl", "verl", "openrlhf")
"""Log k1 or k3 under one name: what is below 0 can't be k3."""


def as_set(
    known: Known, framework: str, settings: Mapping[str, object], values: Iterable[float]
) -> Known | None:
    """The name as the run's settings, or the sign of its values, make it; none where it is in no usable unit."""
    if framework == "verl":
        is_loss = known.name.endswith("kl_loss")
        kind = settings.get(LOSS_TYPE if is_loss else REWARD_TYPE)
        aggregated = _aggregated(known, settings.get(LOSS_MODE)) if is_loss else known
        if aggregated is None:
            return None
        if isinstance(kind, str):
            return replace(aggregated, estimator=_ESTIMATORS.get(kind, kind))
        known = aggregated
    if framework in _EITHER and any(value < 0 for value in values):
        return replace(known, estimator="k1", why=f"{known.why}; k1, since it has values below 0")
    return known


def _aggregated(known: Known, mode: object) -> Known | None:
    """The KL in verl's loss, which is aggregated as the loss is; none where the mode leaves it in neither unit."""
    if not isinstance(mode, str):
        return known
    why = f"verl's loss_agg_mode is {mode}"
    if mode in ("token-mean", "seq-mean-token-mean"):
        is_mean_of_means = mode != "token-mean"
        return replace(
            known,
            why=f"{why}: a mean over tokens",
            is_certain=True,
            is_mean_of_means=is_mean_of_means,
        )
    if mode == "seq-mean-token-sum":
        why = f"{why}: summed over each completion"
        return replace(known, quantity=Quantity.KL_SEQ, unit=SEQ, why=why, is_certain=True)
    return None
