"""Every framework's names of all that is no KL: reward, gold, length, entropy, loss and what moves them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kltune.diagnose.known import TOKEN, Known, Transform
from kltune.symptoms.curve import Quantity

_PROXY: Final = "proxy reward"
_TOKENS: Final = "tokens"
_COMPLETIONS: Final = "share of completions"
_GROUPS: Final = "share of groups"
_SHARE: Final = "share of tokens"
_SAME_JUDGE: Final = "held-out prompts judged by the training reward: no gold"
_HELD_OUT: Final = "score on held-out prompts; whether its judge is another than the training reward's, the log does not say"

_NAMED_GOLD: Final = "a reward function with gold in its name, beside the training reward"
_EVAL_GOLD: Final = "a reward function with gold in its name, on the evaluation's prompts, which counts before the same on the training's"
_ONE_OF_SEVERAL: Final = "reward functions one by one: what is trained on is their sum, reward"
_GOLD_STD: Final = "spread of gold over completions: not its standard error"

_KLTUNE: Final = (
    Known("train/proxy_mean", Quantity.PROXY, _PROXY),
    Known("train/proxy_std", Quantity.PROXY_STD, _PROXY, why="within a group, mean over groups"),
    Known("train/zero_group_frac", Quantity.ZERO_GROUPS, _GROUPS),
    Known("train/advantage_std", Quantity.ADVANTAGE_STD, "1"),
    Known("eval/gold", Quantity.GOLD, "gold"),
    Known("eval/gold_se", Quantity.GOLD_SE, "gold"),
    Known("ctrl/beta", Quantity.BETA, "beta_unit"),
    Known("ctrl/target", Quantity.TARGET, "kl_unit"),
    Known("train/entropy_token", Quantity.ENTROPY, TOKEN),
    Known("tokens/completion_mean", Quantity.LENGTH, _TOKENS),
    Known("tokens/truncated_frac", Quantity.TRUNCATED, _COMPLETIONS),
    Known("tokens/repeated_frac", Quantity.REPEATED, "share of trigrams"),
    Known("train/loss", Quantity.LOSS, "1"),
    Known("train/loss_kl", Quantity.LOSS_KL, "1"),
    Known("train/loss_policy", Quantity.LOSS_POLICY, "1"),
    Known("train/grad_norm", Quantity.GRAD_NORM, "1"),
    Known("train/learning_rate", Quantity.LEARNING_RATE, "1"),
    Known("train/clip_frac", Quantity.CLIP_FRAC, _SHARE),
    Known("train/explained_variance", Quantity.EXPLAINED_VARIANCE, "1"),
    Known("train/kl_proxy_corr", Quantity.KL_PROXY_CORR, "1"),
)

_TRL: Final = (
    Known("reward", Quantity.PROXY, _PROXY, why="before any KL"),
    Known("reward_std", Quantity.PROXY_STD, _PROXY, why="over all completions of the step"),
    Known("frac_reward_zero_std", Quantity.ZERO_GROUPS, _GROUPS),
    Known("entropy", Quantity.ENTROPY, TOKEN),
    Known("completions/mean_length", Quantity.LENGTH, _TOKENS),
    Known(
        "completion_length",
        Quantity.LENGTH,
        _TOKENS,
        why="name of completions/mean_length up to 0.16",
    ),
    Known("completions/clipped_ratio", Quantity.TRUNCATED, _COMPLETIONS),
    Known("clip_ratio/region_mean", Quantity.CLIP_FRAC, _SHARE),
    Known("clip_ratio", Quantity.CLIP_FRAC, _SHARE),
    Known("loss", Quantity.LOSS, "1"),
    Known("policy_loss", Quantity.LOSS_POLICY, "1"),
    Known("grad_norm", Quantity.GRAD_NORM, "1"),
    Known("learning_rate", Quantity.LEARNING_RATE, "1"),
    Known("eval_rewards/*gold*/mean", Quantity.GOLD, "gold", why=_EVAL_GOLD, is_certain=False),
    Known("eval/rewards/*gold*/mean", Quantity.GOLD, "gold", why=_EVAL_GOLD, is_certain=False),
    Known("rewards/*gold*/mean", Quantity.GOLD, "gold", why=_NAMED_GOLD, is_certain=False),
    Known("rewards/*", None, why=_ONE_OF_SEVERAL),
    Known("eval_rewards/*gold*/std", None, why=_GOLD_STD),
    Known("eval/rewards/*gold*/std", None, why=_GOLD_STD),
    Known("eval_rewards/*", None, why=_SAME_JUDGE),
    Known("eval/rewards/*", None, why=_SAME_JUDGE),
    Known("eval_reward", None, why=_SAME_JUDGE),
    Known("eval/reward", None, why=_SAME_JUDGE),
    Known("eval_kl", None, why="KL on the evaluation's prompts; the training one is shown"),
    Known("eval/kl", None, why="KL on the evaluation's prompts; the training one is shown"),
    Known("sampling/*", None, why="generator against trainer as absolute differences: no KL"),
)

_TRL_PPO: Final = (
    Known("objective/scores", Quantity.PROXY, _PROXY, why="before any KL"),
    Known("policy/entropy_avg", Quantity.ENTROPY, TOKEN),
    Known("loss/policy_avg", Quantity.LOSS_POLICY, "1"),
    Known("policy/clipfrac_avg", Quantity.CLIP_FRAC, _SHARE),
    Known("beta", Quantity.BETA, "reward per nat of sequence KL"),
    Known("loss", Quantity.LOSS, "1"),
    Known("grad_norm", Quantity.GRAD_NORM, "1"),
    Known("lr", Quantity.LEARNING_RATE, "1"),
    Known("learning_rate", Quantity.LEARNING_RATE, "1"),
)

_TRL_LEGACY: Final = (
    Known("ppo/mean_scores", Quantity.PROXY, _PROXY, why="before any KL"),
    Known("env/reward_mean", Quantity.PROXY, _PROXY, why="before any KL"),
    Known("ppo/std_scores", Quantity.PROXY_STD, _PROXY, why="over all completions of the step"),
    Known("env/reward_std", Quantity.PROXY_STD, _PROXY, why="over all completions of the step"),
    Known("objective/kl_coef", Quantity.BETA, "reward per nat of sequence KL"),
    Known("ppo/policy/entropy", Quantity.ENTROPY, TOKEN),
    Known("tokens/responses_len_mean", Quantity.LENGTH, _TOKENS),
    Known("ppo/loss/total", Quantity.LOSS, "1"),
    Known("ppo/loss/policy", Quantity.LOSS_POLICY, "1"),
    Known("ppo/policy/clipfrac", Quantity.CLIP_FRAC, _SHARE),
    Known("ppo/learning_rate", Quantity.LEARNING_RATE, "1"),
    Known("ppo/val/var_explained", Quantity.EXPLAINED_VARIANCE, "1"),
)

_VERL: Final = (
    Known("critic/score/mean", Quantity.PROXY, _PROXY, why="before any KL"),
    Known(
        "critic/rewards/mean",
        Quantity.PROXY,
        _PROXY,
        why="after a KL that is paid in the reward",
        is_certain=False,
    ),
    Known("val-core/*/acc/mean@*", Quantity.GOLD, "gold", why=_HELD_OUT, is_certain=False),
    Known("val-core/*/acc/mean_at_*", Quantity.GOLD, "gold", why=_HELD_OUT, is_certain=False),
    Known("val-core/*/reward/mean@*", Quantity.GOLD, "gold", why=_HELD_OUT, is_certain=False),
    Known("val-core/*/reward/mean_at_*", Quantity.GOLD, "gold", why=_HELD_OUT, is_certain=False),
    Known("val/test_score/*", Quantity.GOLD, "gold", why=_HELD_OUT, is_certain=False),
    Known("actor/reward_kl_penalty_coeff", Quantity.BETA, "reward per nat of sequence KL"),
    Known("critic/kl_coeff", Quantity.BETA, "reward per nat of sequence KL"),
    Known("actor/kl_coef", Quantity.BETA, "loss coefficient"),
    Known("actor/entropy", Quantity.ENTROPY, TOKEN),
    Known(
        "actor/entropy_loss", Quantity.ENTROPY, TOKEN, why="name of actor/entropy in older versions"
    ),
    Known("response_length/mean", Quantity.LENGTH, _TOKENS),
    Known("response_length/clip_ratio", Quantity.TRUNCATED, _COMPLETIONS),
    Known("actor/loss", Quantity.LOSS, "1"),
    Known("actor/pg_loss", Quantity.LOSS_POLICY, "1"),
    Known("actor/grad_norm", Quantity.GRAD_NORM, "1"),
    Known("actor/lr", Quantity.LEARNING_RATE, "1"),
    Known("actor/pg_clipfrac", Quantity.CLIP_FRAC, _SHARE),
    Known("critic/vf_explained_var", Quantity.EXPLAINED_VARIANCE, "1"),
)

_OPENRLHF: Final = (
    Known("reward", Quantity.PROXY, _PROXY, why="before any KL"),
    Known("response_length", Quantity.LENGTH, _TOKENS),
    Known("response_clip_ratio", Quantity.TRUNCATED, _COMPLETIONS),
    Known("truncated", Quantity.TRUNCATED, _COMPLETIONS),
    Known("entropy_loss", Quantity.ENTROPY, TOKEN, why="mean entropy over tokens"),
    Known("policy_loss", Quantity.LOSS_POLICY, "1"),
    Known("actor_grad_norm", Quantity.GRAD_NORM, "1"),
    Known("grad_norm", Quantity.GRAD_NORM, "1"),
    Known("actor_lr", Quantity.LEARNING_RATE, "1"),
    Known("ppo_clip_ratio", Quantity.CLIP_FRAC, _SHARE),
    Known("eval/*", None, why=_SAME_JUDGE),
)

_NEMO: Final = (
    Known("reward", Quantity.PROXY, _PROXY),
    Known("validation/accuracy", Quantity.GOLD, "gold", why=_HELD_OUT, is_certain=False),
    Known("approx_entropy", Quantity.ENTROPY, TOKEN),
    Known("mean_gen_tokens_per_sample", Quantity.LENGTH, _TOKENS),
    Known("gen_tokens_per_sample/mean", Quantity.LENGTH, _TOKENS),
    Known("truncation_rate", Quantity.TRUNCATED, _COMPLETIONS),
    Known("loss", Quantity.LOSS, "1"),
    Known("grad_norm", Quantity.GRAD_NORM, "1"),
    Known("lr", Quantity.LEARNING_RATE, "1"),
)

_OPEN_INSTRUCT: Final = (
    Known("scores", Quantity.PROXY, _PROXY),
    Known("objective/scores", Quantity.PROXY, _PROXY),
    Known("eval/scores", None, why=_SAME_JUDGE),
    Known("policy/entropy_avg", Quantity.ENTROPY, TOKEN),
    Known("val/sequence_lengths", Quantity.LENGTH, _TOKENS),
    Known("val/truncated_completion_fraction", Quantity.TRUNCATED, _COMPLETIONS),
    Known("val/stop_rate", Quantity.TRUNCATED, _COMPLETIONS, transform=Transform.COMPLEMENT),
    Known("loss/total_avg", Quantity.LOSS, "1"),
    Known("loss/policy_avg", Quantity.LOSS_POLICY, "1"),
    Known("optim/grad_norm", Quantity.GRAD_NORM, "1"),
    Known("lr", Quantity.LEARNING_RATE, "1"),
    Known("policy/clipfrac_avg", Quantity.CLIP_FRAC, _SHARE),
)

_TRLX: Final = (
    Known("reward/mean", Quantity.PROXY, _PROXY),
    Known("exp_scores/mean", Quantity.PROXY, _PROXY),
    Known("rollout_scores/mean", Quantity.PROXY, _PROXY),
    Known("exp_scores/std", Quantity.PROXY_STD, _PROXY),
    Known("rollout_scores/std", Quantity.PROXY_STD, _PROXY),
    Known("kl_ctl_value", Quantity.BETA, "reward per nat of sequence KL"),
    Known("losses/total_loss", Quantity.LOSS, "1"),
    Known("losses/policy_loss", Quantity.LOSS_POLICY, "1"),
    Known("policy/clipfrac", Quantity.CLIP_FRAC, _SHARE),
    Known("learning_rate_group_0", Quantity.LEARNING_RATE, "1"),
)

OTHERS: Final[Mapping[str, tuple[Known, ...]]] = MappingProxyType(
    {
        "kltune": _KLTUNE,
        "trl": _TRL,
        "trl-ppo": _TRL_PPO,
        "trl-legacy": _TRL_LEGACY,
        "trl-online-dpo": _TRL_PPO,
        "verl": _VERL,
        "openrlhf": _OPENRLHF,
        "nemo-rl": _NEMO,
        "open-instruct": _OPEN_INSTRUCT,
        "trlx": _TRLX,
    }
)
"""By framework; of two names of one quantity the earlier counts."""
