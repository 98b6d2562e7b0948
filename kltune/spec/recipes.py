"""KL settings that people type, by versioned name, in the units of their own framework.

``advantage``: a loss coefficient beside group-std-normalised advantages, so that
beta in raw reward per nat = coefficient x sigma_R. ``reward``: raw reward per nat of
sequence KL, as it stands. Sources: kl-reference.md §3.5 and §7 (read from the frameworks' code and the
papers). A recipe holds what is said there of the KL and no other knob: a trial differs from its neighbours
in its KL alone. Recipes of one setting share a `Recipe.setting`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from kltune.spec.penalty import Penalty
from kltune.spec.trial import ControllerKind


@dataclass(frozen=True, slots=True)
class Recipe:
    """One setting by name."""

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
    note: str = ""
    """What else of its source matters for the number, a sentence; empty: nothing."""
    is_published: bool = True
    """False: this project's own reading of the published ones."""

    @property
    def setting(self) -> tuple[object, ...]:
        """What a trial is made of: equal for recipes that are one setting under two names."""
        steering = (self.controller, self.target_kl_seq, self.horizon)
        return (self.beta_in, self.penalty, self.beta, *steering)


def _reward(name: str, beta: float, source: str, note: str = "") -> Recipe:
    """k1 summed over the answer, subtracted from its reward: PPO's and RLOO's way."""
    return Recipe(name, source, Penalty.K1_REWARD, beta, "reward", note=note)


def _loss(
    name: str, beta: float, source: str, note: str = "", penalty: Penalty = Penalty.K3_LOSS
) -> Recipe:
    """A coefficient in the loss, k3 unless said: GRPO's way."""
    return Recipe(name, source, penalty, beta, "advantage", note=note)


def _adaptive(name: str, beta: float, source: str, note: str = "") -> Recipe:
    """Ziegler's controller: 6 nats per sequence, time constant 10,000 sequences."""
    return Recipe(
        name,
        source,
        Penalty.K1_REWARD,
        beta,
        "reward",
        ControllerKind.PROPORTIONAL,
        target_kl_seq=6.0,
        horizon=10_000,
        note=note,
    )


_TULU: Final = (
    "its verifier pays 10 for a right answer; beside one that pays 1, the same price is a tenth"
)
_UNSAID: Final = "the source names no estimator: k3, its framework's default"
_RESET: Final = "its reference is replaced during the run, which is not done here"
_WEIGHTED: Final = "from v0.7.0 on, k3 with a differentiable ratio: the gradient of the reverse KL"
_PLAIN: Final = "up to v0.6.0, plain k3: the gradient of the forward KL"
_READING: Final = "this project's reading of the published ones"


def _reading(recipe: Recipe) -> Recipe:
    return Recipe(
        recipe.name,
        f"{_READING}, no publication: {recipe.source}",
        recipe.penalty,
        recipe.beta,
        recipe.beta_in,
        note=recipe.note,
        is_published=False,
    )


_ALL = (
    _loss("trl-grpo-0.18", 0.04, "TRL 0.14-0.18 GRPOConfig default"),
    _loss("deepseekmath", 0.04, "DeepSeekMath 7B (2402.03300)"),
    _loss("deepseek-r1", 0.001, "DeepSeek-R1 and R1-Zero (2501.12948)", f"671B; {_RESET}"),
    _loss("tulu3-grpo", 0.01, "Tulu 3 8B GRPO / OLMo 2 1B"),
    _reward("verl-ppo", 0.001, "verl kl_ctrl default, use_kl_in_reward", "needs the flag in verl"),
    _loss("verl-grpo", 0.001, "verl GRPO examples, 0.5B-671B (kl_loss_coef)"),
    _reward("trl-rloo", 0.05, "TRL RLOOConfig default"),
    _reward("instructgpt", 0.02, "InstructGPT, 1.3B-175B (2203.02155)"),
    _reward("stiennon", 0.05, "Stiennon et al. 2020, 1.3B-6.7B (2009.01325)"),
    _adaptive("ziegler-sentiment", 0.15, "Ziegler et al. 2019 (1909.08593), adaptive, 24 tokens"),
    _reward("ziegler-cnndm", 0.01, "Ziegler et al. 2019, CNN/DM summaries, 75 tokens"),
    _reward("ziegler-tldr", 0.03, "Ziegler et al. 2019, TL;DR summaries, 75 tokens"),
    _adaptive("trl-ppo-0.11", 0.2, "TRL up to 0.11.4 PPOConfig default, adaptive"),
    _reward("trl-ppo-1.12", 0.05, "TRL 0.12-1.12 PPOConfig default; N+ details (2403.17031)"),
    _reward("bai-2022", 0.001, "Bai et al. 2022, 52B (2204.05862)", "no estimator is named: k1"),
    _reward("rloo-paper", 0.03, "RLOO (2402.14740), Pythia 6.9B and Llama 7B"),
    _reward("tulu3-ppo-8b", 0.05, "Tulu 3 8B PPO (2411.15124)", _TULU),
    _reward("tulu3-ppo-70b", 0.07, "Tulu 3 70B PPO (2411.15124)", _TULU),
    _reward("tulu3-ppo-405b", 0.05, "Tulu 3 405B PPO (2411.15124)", _TULU),
    _loss("open-instruct-grpo", 0.05, "open-instruct default (estimator 2 = k3)"),
    _loss("verl-grpo-vl", 0.01, "verl examples of VL models, Qwen3.5 27B-397B and GLM-4.1V"),
    _loss("verl-grpo-openr1", 0.02, "verl example Qwen3.5 2B, openr1", _UNSAID),
    _loss("intellect-2", 0.001, "INTELLECT-2 32B", _UNSAID),
    _loss("prorl-v1", 1e-4, "ProRL 1.5B", f"the source says k2 or k3; {_RESET}"),
    _loss("prorl-v2", 1e-4, "ProRL v2, NeMo-RL's prorlv2", _RESET, Penalty.K2_LOSS),
    _loss("deepscaler-0.001", 0.001, "DeepScaleR 1.5B, the stage with 0.001", _UNSAID),
    _loss("deepscaler-1e-4", 1e-4, "DeepScaleR 1.5B, the stage with 1e-4", _UNSAID),
    _reward("openrlhf-ppo", 0.01, "OpenRLHF PPO, Llama 3 8B (init_coef, gae)"),
    _loss(
        "openrlhf-reinforce++", 1e-5, "OpenRLHF REINFORCE++-baseline example", "", Penalty.K2_LOSS
    ),
    _loss("openrlhf-dapo-style", 0.001, "OpenRLHF's DAPO-style example"),
    _loss("nemo-math-1b-0.6", 0.01, "NeMo-RL grpo_math_1B", _PLAIN),
    _loss("nemo-math-1b-0.7", 0.01, "NeMo-RL grpo_math_1B", _WEIGHTED, Penalty.WK3_LOSS),
    _loss("nemo-moonlight-0.6", 0.04, "NeMo-RL moonlight recipe", _PLAIN),
    _loss("nemo-moonlight-0.7", 0.04, "NeMo-RL moonlight recipe", _WEIGHTED, Penalty.WK3_LOSS),
    _loss("nemo-dsr1-7b-0.6", 0.001, "NeMo-RL ppo-dsr1-7b", _PLAIN),
    _loss("nemo-dsr1-7b-0.7", 0.001, "NeMo-RL ppo-dsr1-7b", _WEIGHTED, Penalty.WK3_LOSS),
    _reward("comedy-low", 0.05, "Comedy of Estimators, best (2512.21852): its lower end"),
    _reward("comedy-high", 0.1, "Comedy of Estimators, best (2512.21852): its upper end"),
    _reading(
        _reward(
            "conservative",
            0.05,
            "the high end of what is usual beside a learned reward (0.01-0.05)",
            "for a reward with a spread of about 1",
        )
    ),
    _reading(
        _reward(
            "aggressive",
            0.001,
            "the lowest price in the reward that is in use (verl, Bai et al.)",
            "for a reward with a spread of about 1",
        )
    ),
    _reading(
        _loss(
            "maths",
            0.01,
            "a verifier of maths on a small instruct model (Tulu 3 8B, OLMo 2 1B, NeMo-RL 1B)",
            "they use k3; k2 has the gradient of the reverse KL",
            Penalty.K2_LOSS,
        )
    ),
    _reading(
        _loss(
            "code",
            0.001,
            "verifiers of code and maths (DeepSeek-R1, INTELLECT-2, verl examples)",
            "they use k3; k2 has the gradient of the reverse KL",
            Penalty.K2_LOSS,
        )
    ),
)

RECIPES: Final[Mapping[str, Recipe]] = MappingProxyType({recipe.name: recipe for recipe in _ALL})
"""By name."""

WITHOUT_KL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dapo": "DAPO, Qwen2.5 32B (2503.14476)",
        "deepscaler-0": "DeepScaleR 1.5B, the stage without KL",
        "dr-grpo": "Dr.GRPO, 1.5B-7B (2503.20783)",
        "gspo": "GSPO (2507.18071)",
        "liteppo": "LitePPO",
        "nemo-rl": "most recipes of NeMo-RL",
        "olmo3": "OLMo 3, 7B and 32B",
        "trl-grpo": "TRL 0.19 and later, GRPOConfig default",
    }
)
"""Published settings without a KL: they are the arm beta = 0."""

PREFERENCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dpo": "DPO (beta 0.1; TL;DR 0.5)",
        "tr-dpo": "TR-DPO (beta 0.05 and 0.1, alpha 0.6, every 512 steps)",
    }
)
"""Published settings whose beta is no price of a KL beside a reward."""

_TOO_SHORT: Final = 2
"""Letters by which nothing can be told."""


def unknown_words(name: str) -> str:
    """Why there is no recipe of this name, and what to write instead; one sentence."""
    key = name.casefold().replace("_", "-")
    folded = {known.casefold(): known for known in (*RECIPES, *WITHOUT_KL, *PREFERENCES)}
    known = folded.get(key, "")
    if known in WITHOUT_KL:
        return (
            f"{known} trains without a KL ({WITHOUT_KL[known]}): it is the arm beta = 0, so set "
            "search.beta.zero: true; its other settings are the trainer's"
        )
    if known in PREFERENCES:
        return (
            f"{known} is no reinforcement learning ({PREFERENCES[known]}): it has no reward beside which a "
            "KL could be priced, so it can't be run here"
        )
    close = difflib.get_close_matches(key, folded, n=3, cutoff=0.6)
    starts = [one for one in folded if len(key) > _TOO_SHORT and one.startswith(key)]
    near = [folded[one] for one in dict.fromkeys([*starts, *close])][:5]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"unknown recipe {name!r}; {hint}`kltune explain recipes` lists all"
