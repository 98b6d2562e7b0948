"""Every framework's names of a KL, as kl-reference.md §4 has them: which distance, which estimator, which unit."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kltune.diagnose.known import SEQ, TOKEN, Known, Transform
from kltune.symptoms.curve import Quantity

_KL_TOKEN: Final = Quantity.KL_TOKEN
_KL_SEQ: Final = Quantity.KL_SEQ
_UPDATE: Final = Quantity.UPDATE_KL_TOKEN
_SAMPLER: Final = Quantity.SAMPLER_KL_TOKEN

_OLD_NEW: Final = (
    "policy at rollout against policy now: an update KL, never a distance to the reference"
)
_ENGINE: Final = "generator against trainer on the same weights: never a distance to the reference"
_TIMES_BETA: Final = "coefficient x KL, no KL by itself"

_KLTUNE: Final = (
    Known(
        "kl/exact_token",
        _KL_TOKEN,
        TOKEN,
        "exact",
        "kltune's monitor: full vocabulary, mean over tokens",
    ),
    Known("kl/exact_seq", _KL_SEQ, SEQ, "exact", "the same summed over each completion"),
    Known("kl/k1_token", Quantity.K1_TOKEN, TOKEN, "k1", "mean log-ratio over tokens"),
    Known("kl/k1_seq", Quantity.K1_SEQ, SEQ, "k1", "log-ratio summed over each completion"),
    Known("kl/k1_seq_se", Quantity.K1_SEQ_SE, SEQ, "k1", "its standard error over completions"),
    Known("kl/exact_p99_token", Quantity.KL_P99_TOKEN, TOKEN, "exact", "99 % quantile over tokens"),
    Known("kl/exact_max_token", Quantity.KL_MAX_TOKEN, TOKEN, "exact", "largest of the tokens"),
    Known("kl/update_token", _UPDATE, TOKEN, "k3", _OLD_NEW),
    Known("kl/sampler_token", _SAMPLER, TOKEN, "k1", _ENGINE),
)

_TRL: Final = (
    Known(
        "kl", _KL_TOKEN, TOKEN, "k3",
        "TRL logs the mean over all valid tokens (GRPO: k3, with its importance weight; RLOO: k1)",
    ),
)  # fmt: skip

_TRL_SUMMED: Final = "TRL sums over each completion's tokens and averages over completions"

_TRL_PPO: Final = (
    Known("objective/kl", _KL_SEQ, SEQ, "k1", f"{_TRL_SUMMED} (k1 by default, k3 by kl_estimator)"),
    Known("policy/approxkl_avg", _UPDATE, TOKEN, "k2", f"{_OLD_NEW}; padding is counted"),
    Known("objective/non_score_reward", None, "", "", "-coefficient x KL, no KL by itself"),
    Known("objective/rlhf_reward", None, "", "", "score - coefficient x KL: not the score alone"),
    Known(
        "objective/entropy",
        None,
        "",
        "",
        "summed over the completion, padding counted as 1.0 before #6121",
    ),
)

_TRL_LEGACY: Final = (
    Known(
        "objective/kl", _KL_SEQ, SEQ, "k1", f"{_TRL_SUMMED} (k1 by default, kl_penalty changes it)"
    ),
    Known("ppo/policy/policykl", _UPDATE, TOKEN, "k1", _OLD_NEW),
    Known("ppo/policy/approxkl", _UPDATE, TOKEN, "k2", _OLD_NEW),
    Known("policy/policykl", _UPDATE, TOKEN, "k1", _OLD_NEW),
    Known("policy/approxkl", _UPDATE, TOKEN, "k2", _OLD_NEW),
    Known("ppo/mean_non_score_reward", None, "", "", "-coefficient x KL, no KL by itself"),
    Known("objective/entropy", None, "", "", "summed over the completion: not per token"),
)

_TRL_ONLINE_DPO: Final = (
    Known("objective/kl", _KL_SEQ, SEQ, "k1", _TRL_SUMMED),
    Known("objective/non_score_reward", None, "", "", "-coefficient x KL, no KL by itself"),
    Known("objective/rlhf_reward", None, "", "", "score - coefficient x KL: not the score alone"),
    Known("objective/entropy", None, "", "", "summed over the completion: not per token"),
)

_VERL: Final = (
    Known(
        "actor/kl_loss", _KL_TOKEN, TOKEN, "k3",
        "verl averages over tokens under loss_agg_mode token-mean, its default; the log does not show the mode "
        "(0.6 divides it once more by the micro-batches, 0.7 sums it over mini-batches and epochs)",
        is_certain=False,
        zeros_are_missing=True,  # 0.7 logs 0.0 where the loss holds no KL
    ),
    Known(
        "actor/reward_kl_penalty", _KL_TOKEN, TOKEN, "k1",
        "verl averages over each sequence's tokens, then over sequences (k1 by default)",
        is_mean_of_means=True,
    ),
    Known(
        "critic/kl", _KL_TOKEN, TOKEN, "k1",
        "name of reward_kl_penalty up to verl 0.3: mean over each sequence's tokens, then over sequences",
        is_mean_of_means=True,
    ),
    Known("actor/ppo_kl", _UPDATE, TOKEN, "k1", _OLD_NEW),
    Known("rollout_corr/k3_kl", _SAMPLER, TOKEN, "k3", _ENGINE),
    Known("rollout_corr/kl", _SAMPLER, TOKEN, "k1", _ENGINE),
    Known("rollout_corr/*", None, "", "", _ENGINE),
    Known("critic/rewards/*", None, "", "", "score - coefficient x KL where KL is in the reward: not the score alone"),
)  # fmt: skip

_OPENRLHF: Final = (
    Known(
        "kl", _KL_TOKEN, TOKEN, "",
        "OpenRLHF averages over tokens (KL in the reward: over each sequence's tokens, then over sequences)",
        is_mean_of_means=True,
        zeros_are_missing=True,
    ),
    Known("logprobs_diff", Quantity.K1_TOKEN, TOKEN, "k1", "mean log-ratio over tokens (KL in the loss)"),
    Known("ppo_kl", _UPDATE, TOKEN, "k1", _OLD_NEW),
    Known("vllm_kl", _SAMPLER, TOKEN, "k1", _ENGINE),
    Known("return", None, "", "", "reward to go with the KL in it: not the reward alone"),
)  # fmt: skip

_NEMO: Final = (
    Known(
        "kl_penalty", _KL_TOKEN, TOKEN, "k3",
        "NeMo-RL averages over tokens and has already divided by the coefficient",
        zeros_are_missing=True,
    ),
    Known("gen_kl_error", _SAMPLER, TOKEN, "k3", _ENGINE),
    Known("policy_kl_error", None, "", "", _ENGINE),
    Known("js_divergence_error", None, "", "", _ENGINE),
    Known("token_mult_prob_error", None, "", "", _ENGINE),
)  # fmt: skip

_OPEN_INSTRUCT: Final = (
    Known("objective/kl2_avg", _KL_TOKEN, TOKEN, "k3", "open-instruct counts from 0: kl2 is k3, mean over tokens", zeros_are_missing=True),
    Known("objective/kl0_avg", _KL_TOKEN, TOKEN, "k1", "open-instruct counts from 0: kl0 is k1, mean over tokens", zeros_are_missing=True),
    Known("objective/kl0_avg", Quantity.K1_TOKEN, TOKEN, "k1", "open-instruct counts from 0: kl0 is k1", zeros_are_missing=True),
    Known("objective/kl1_avg", _KL_TOKEN, TOKEN, "k2", "open-instruct counts from 0: kl1 is k2, mean over tokens", zeros_are_missing=True),
    Known("objective/kl3_avg", _KL_TOKEN, TOKEN, "weighted k1", "open-instruct counts from 0: kl3 is k1 with its importance weight", zeros_are_missing=True),
    Known("loss/kl_avg", Quantity.LOSS_KL, "", "", _TIMES_BETA),
    Known("debug/vllm_local_reverse_kl", None, "", "", f"{_ENGINE}; and weighted twice by its probabilities"),
    Known("debug/*", None, "", "", _ENGINE),
)  # fmt: skip

_TRLX: Final = (
    Known(
        "policy/sqrt_kl", _KL_SEQ, SEQ, "k3 with the ratio inverted",
        "trlX logs the square root of the sum over tokens, the prompt's too: squared here",
        transform=Transform.SQUARE,
    ),
    Known(
        "policy/kl_per_token", _KL_TOKEN, TOKEN, "k3 with the ratio inverted",
        "trlX logs the square root of the mean over tokens, padding counted: squared here",
        transform=Transform.SQUARE,
    ),
    Known("policy/approx_kl", _UPDATE, TOKEN, "k3", _OLD_NEW),
)  # fmt: skip

KL: Final[Mapping[str, tuple[Known, ...]]] = MappingProxyType(
    {
        "kltune": _KLTUNE,
        "trl": _TRL,
        "trl-ppo": _TRL_PPO,
        "trl-legacy": _TRL_LEGACY,
        "trl-online-dpo": _TRL_ONLINE_DPO,
        "verl": _VERL,
        "openrlhf": _OPENRLHF,
        "nemo-rl": _NEMO,
        "open-instruct": _OPEN_INSTRUCT,
        "trlx": _TRLX,
    }
)
"""By framework; of two names of one quantity the earlier counts."""
