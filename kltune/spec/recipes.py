"""Published KL recipes by versioned name, in the units of their own framework.

``advantage``: a loss coefficient beside group-std-normalised advantages, so that
beta in raw reward per nat = coefficient x sigma_R. ``reward``: raw reward per nat of
sequence KL, as it stands. Sources: kl-reference.md §3.5 and §7 (read from the frameworks' code and the papers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kltune.spec.penalty import Penalty
from kltune.spec.trial import ControllerKind


@dataclass(frozen=True, slots=True)
class Recipe:
    """One published setting."""

    name: str
    source: str
    penalty: Penalty
    beta: float
    beta_in: Literal["advantage", "reward"]
    controller: ControllerKind = ControllerKind.FIXED
    target_kl_seq: float | None = None
    """Nats per sequence."""
    horizon: float | None = None
    """Sequences."""


_ALL = (
    Recipe("trl-grpo-0.18", "TRL 0.14-0.18 GRPOConfig default", Penalty.K3_LOSS, 0.04, "advantage"),
    Recipe("deepseekmath", "DeepSeekMath (2402.03300)", Penalty.K3_LOSS, 0.04, "advantage"),
    Recipe("deepseek-r1", "DeepSeek-R1 (2501.12948)", Penalty.K3_LOSS, 0.001, "advantage"),
    Recipe("tulu3-grpo", "Tulu 3 8B GRPO / OLMo 2 1B", Penalty.K3_LOSS, 0.01, "advantage"),
    Recipe(
        "verl-ppo", "verl kl_ctrl default, use_kl_in_reward", Penalty.K1_REWARD, 0.001, "reward"
    ),
    Recipe("verl-grpo", "verl GRPO examples (kl_loss_coef)", Penalty.K3_LOSS, 0.001, "advantage"),
    Recipe("trl-rloo", "TRL RLOOConfig default", Penalty.K1_REWARD, 0.05, "reward"),
    Recipe("instructgpt", "InstructGPT (2203.02155)", Penalty.K1_REWARD, 0.02, "reward"),
    Recipe("stiennon", "Stiennon et al. 2020 (2009.01325)", Penalty.K1_REWARD, 0.05, "reward"),
    Recipe(
        "ziegler-sentiment",
        "Ziegler et al. 2019 (1909.08593), adaptive",
        Penalty.K1_REWARD,
        0.15,
        "reward",
        ControllerKind.PROPORTIONAL,
        target_kl_seq=6.0,
        horizon=10_000,
    ),
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ALL}
