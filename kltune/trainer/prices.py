"""A trial's beta in, what a nat of its KL costs in the reward and in the loss out."""

from __future__ import annotations

from dataclasses import dataclass

from kltune.spec.trial import BetaUnit, TrialSpec
from kltune.trainer.parts import BankSettings
from kltune.units import (
    advantage_scale,
    baseline_share,
    in_advantage_units,
    loss_coefficient,
    reward_price,
)


@dataclass(frozen=True, slots=True)
class Prices:
    """Where a nat is paid, and how much; 0 where it is not."""

    reward: float
    """Shaped reward per nat."""
    loss: float
    """Advantage units per nat: the coefficient of the KL in the loss."""

    @property
    def coefficient(self) -> float:
        """The number that a person types: the loss's, or the reward's where the loss has none."""
        return self.loss or self.reward


def advantage_divisor(settings: BankSettings) -> float | None:
    """What the bank's algorithm divides its advantages by, in raw proxy reward; none: nothing."""
    trainer, scale = settings.trainer, settings.scale
    critic = trainer.value_function
    is_whitened = critic is None or critic.whiten
    return advantage_scale(trainer.algorithm, scale.sigma, scale.std, is_whitened=is_whitened)


def prices(settings: BankSettings, spec: TrialSpec, beta: float, reward_factor: float) -> Prices:
    """Prices of a step; ``reward_factor``: shaped reward per raw proxy reward.

    exact-full pays in both places, and the same: its price in the loss is that in the
    reward beside the divided advantages, in either unit of beta.
    """
    penalty = spec.penalty
    if penalty is None or beta == 0:
        return Prices(0.0, 0.0)
    trainer, unit = settings.trainer, settings.beta_unit
    scale = advantage_divisor(settings)
    share = baseline_share(trainer.algorithm, trainer.group_size)
    if not penalty.in_reward:
        left = share if unit is BetaUnit.REWARD else 1.0
        return Prices(0.0, left * loss_coefficient(beta, unit.value, scale, reward_factor))
    price = reward_price(beta, unit.value, reward_factor)
    if not penalty.in_loss:
        return Prices(price, 0.0)
    return Prices(price, share * in_advantage_units(price, scale, reward_factor))
