"""A setting and a target in, the keys of verl that say where the KL stands and what it costs out.

Read in verl's tags on record in kltune/export/keys: ``trainer/ppo/core_algos.py`` (kl_penalty and
its gradient, controllers), ``trainer/ppo/ray_trainer.py`` (apply_kl_penalty).
"""

from __future__ import annotations

from typing import Final

from kltune.export import convert
from kltune.export.cautions import updates_per_rollout
from kltune.export.convert import Gradient, Held
from kltune.export.key import Key
from kltune.export.setting import Winner
from kltune.export.target import Target
from kltune.spec.penalty import Penalty

ACTOR: Final = "actor_rollout_ref.actor"

_PLUS: Final = (0, 8, 0)
"""First release in which the estimators with a + work; 0.6.0 to 0.7.1 have them and raise."""


def kl_keys(winner: Winner, target: Target, beta: Held, warnings: list[str]) -> list[Key]:
    """Placement, estimator, coefficient and controller; what differs goes to ``warnings``."""
    kind = convert.gradient(winner)
    has_switch = "algorithm.use_kl_in_reward" in target.keys
    in_reward, in_loss = kind is Gradient.FULL, kind in (Gradient.LOCAL, Gradient.FORWARD)
    keys: list[Key] = []
    if has_switch:
        where = "the study paid the KL in the reward" if in_reward else "no KL in the reward"
        keys.append(
            Key(
                "algorithm.use_kl_in_reward", in_reward, f"{where}; its default was on before 0.4.0"
            )
        )
    keys.append(
        Key(f"{ACTOR}.use_kl_loss", in_loss, "KL in the loss" if in_loss else "no KL in the loss")
    )
    if in_reward:
        keys += _in_reward(winner, target, beta)
    elif in_loss:
        keys += _in_loss(winner, target, beta, warnings)
    elif not has_switch:
        keys.append(
            Key(
                "algorithm.kl_ctrl.kl_coef",
                0.0,
                "beta = 0; this release always pays a KL in the reward",
            )
        )
    return keys


def _in_reward(winner: Winner, target: Target, beta: Held) -> list[Key]:
    price = convert.price(winner, target, beta.beta)
    keys = [
        Key("algorithm.kl_penalty", "kl", f"k1 = log-ratio, as {winner.setting.penalty}"),
        Key("algorithm.kl_ctrl.type", "adaptive" if beta.is_adaptive else "fixed", beta.words),
        Key(
            "algorithm.kl_ctrl.kl_coef",
            price.value,
            f"{price.words}; summed over the response, before normalisation",
        ),
    ]
    if beta.is_adaptive:
        set_point = convert.target_per_token(winner, target)
        assert set_point is not None, "an adaptive beta has a target"
        horizon = convert.horizon(winner, target)
        measure = (
            "compared with k1, mean over responses of their token means (actor/reward_kl_penalty)"
        )
        keys += [
            Key("algorithm.kl_ctrl.target_kl", set_point.value, f"{set_point.words}; {measure}"),
            Key("algorithm.kl_ctrl.horizon", horizon.value, horizon.words),
        ]
    return keys


def _in_loss(winner: Winner, target: Target, beta: Held, warnings: list[str]) -> list[Key]:
    is_reverse = convert.gradient(winner) is Gradient.LOCAL
    estimator, words = "low_var_kl", "k3: forward-KL gradient"
    if is_reverse:
        estimator, words = "mse", "k2: reverse-KL gradient"
        if winner.setting.penalty is Penalty.K3PLUS_LOSS and target.number >= _PLUS:
            estimator, words = (
                "low_var_kl+",
                "value of k3, gradient of k2 (its + crashes before 0.8.0)",
            )
        if updates_per_rollout(winner) > 1:
            warnings.append(
                "kl_loss_type: verl has no importance ratio on the KL; with several updates on a rollout its gradient "
                "is off by the policy's drift since then, the study's was not"
            )
    if estimator.startswith("low_var_kl") and convert.is_wider(winner):
        warnings.append(
            "verl clamps k3 to ±10 nats a token: beyond that the KL has no gradient; the study's had"
        )
    found = convert.coefficient(winner, target, beta.beta)
    return [
        Key(f"{ACTOR}.kl_loss_type", estimator, f"{words}, as {winner.setting.penalty}"),
        Key(f"{ACTOR}.kl_loss_coef", found.value, f"{found.words}; {beta.words}"),
    ]
