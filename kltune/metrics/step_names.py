"""Every metric of a training step: (name, unit, meaning, TRL's name of the same number or none)."""

from __future__ import annotations

_NAT_TOKEN = "nats/token"
_NAT_SEQ = "nats/sequence"
_PROXY = "proxy reward"

STEP: tuple[tuple[str, str, str, str | None], ...] = (
    (
        "kl/exact_token",
        _NAT_TOKEN,
        "Exact full-vocabulary KL(policy || start) at each token of the rollout, mean over its tokens; "
        "the start is the reference, unless trainer.reference lets that follow the policy",
        None,
    ),
    (
        "kl/exact_seq",
        _NAT_SEQ,
        "The same, summed over each completion, mean over completions",
        None,
    ),
    (
        "kl/exact_max_token",
        _NAT_TOKEN,
        "The largest of the rollout's tokens: one far above the mean is an outlier that rules the penalty",
        None,
    ),
    (
        "kl/exact_p50_token",
        _NAT_TOKEN,
        "Median over the rollout's tokens of the exact KL at each",
        None,
    ),
    ("kl/exact_p95_token", _NAT_TOKEN, "95 % quantile of the same", None),
    (
        "kl/exact_p99_token",
        _NAT_TOKEN,
        "99 % quantile of the same: a broken place hides in the mean, not here",
        None,
    ),
    (
        "kl/anchor_token",
        _NAT_TOKEN,
        "Exact KL(policy || moving reference): what penalty and controller see; absent where it does not move",
        None,
    ),
    (
        "kl/anchor_seq",
        _NAT_SEQ,
        "The same, summed over each completion, mean over completions",
        None,
    ),
    (
        "kl/forward_token",
        _NAT_TOKEN,
        "Exact KL(reference || policy) at the policy's own tokens, mean over tokens",
        None,
    ),
    (
        "kl/jeffreys_token",
        _NAT_TOKEN,
        "Reverse + forward KL to the reference at the policy's own tokens, mean over tokens",
        None,
    ),
    (
        "kl/k1_token",
        _NAT_TOKEN,
        "k1 estimate (log-ratio) of KL(policy || reference), mean over tokens",
        None,
    ),
    ("kl/k1_seq", _NAT_SEQ, "k1 estimate summed over each completion, mean over completions", None),
    (
        "kl/k1_seq_se",
        _NAT_SEQ,
        "Standard error of kl/k1_seq over completions; absent with a single one",
        None,
    ),
    ("kl/k2_token", _NAT_TOKEN, "k2 estimate (half the squared log-ratio), mean over tokens", None),
    (
        "kl/k3_token",
        _NAT_TOKEN,
        "k3 estimate (exp(-log-ratio) - 1 + log-ratio), mean over tokens",
        "kl",
    ),
    (
        "kl/update_token",
        _NAT_TOKEN,
        "KL(policy at rollout || policy now) in the last pass of the step's updates, k3 form; 0 with one update",
        None,
    ),
    (
        "kl/sampler_token",
        _NAT_TOKEN,
        "Generator's minus trainer's log-prob on the same weights, mean over tokens; only numerics",
        None,
    ),
    ("train/proxy_mean", _PROXY, "Mean proxy of the rollout, before any KL is paid", "reward"),
    (
        "train/proxy_std",
        _PROXY,
        "Standard deviation of the proxy within a group (n - 1), mean over groups",
        None,
    ),
    ("train/reward_mean", _PROXY, "Mean proxy after a KL that is paid in the reward", None),
    (
        "train/kl_proxy_corr",
        "1",
        "Correlation over the rollout's completions of exact KL (sum over tokens) and proxy; absent where "
        "one of them is constant",
        None,
    ),
    ("train/advantage_std", "1", "Standard deviation of the advantages over the rollout", None),
    (
        "train/unscored_frac",
        "share of completions",
        "Completions that the proxy could not score (None or NaN): they take part in no baseline",
        None,
    ),
    (
        "train/score_errors",
        "completions",
        "Completions of the step on which the proxy failed and that count as unscored (task.errors); absent "
        "where there are none",
        None,
    ),
    (
        "train/score_clipped_frac",
        "share of scores",
        "Scores that met trainer.reward.clip",
        None,
    ),
    (
        "train/loss",
        "1",
        "Policy loss + coefficient x KL - bonus x entropy, mean over updates",
        None,
    ),
    ("train/loss_policy", "1", "Clipped policy-gradient loss", None),
    ("train/loss_kl", "1", "Coefficient x KL in the loss; 0 where it is in the reward", None),
    ("train/loss_entropy", "1", "Bonus x entropy, which the loss subtracts", None),
    ("train/value_loss", "1", "The critic's clipped squared error, mean over updates", None),
    (
        "train/explained_variance",
        "1",
        "1 - Var(returns - values) / Var(returns) before the updates; absent where all returns are equal",
        None,
    ),
    (
        "train/grad_norm",
        "1",
        "Norm of the gradient of the slot's trained weights before clipping, mean over updates",
        "grad_norm",
    ),
    (
        "train/grad_kl_share",
        "1",
        "Norm of the KL's gradient / (that + norm of the rest's), in the step after an evaluation, of its first "
        "micro-batch; KL paid in the reward counts by its part of the advantages; absent where both are 0",
        None,
    ),
    ("train/clip_frac", "share of tokens", "Tokens whose importance ratio was clipped", None),
    (
        "train/penalty_clipped_frac",
        "share of tokens",
        "Tokens whose KL in the penalty met trainer.kl.clip",
        None,
    ),
    ("train/updates", "updates", "Optimiser updates applied in the step", None),
    (
        "train/zero_group_frac",
        "share of groups",
        "Groups whose rewards are all equal: no policy gradient (a KL in the loss still has one)",
        "frac_reward_zero_std",
    ),
    (
        "train/entropy_token",
        _NAT_TOKEN,
        "Entropy of the policy at each token, mean over tokens",
        "entropy",
    ),
    ("train/learning_rate", "1", "AdamW step size used in the step", "learning_rate"),
    (
        "train/nonfinite_tokens",
        "tokens",
        "Valid tokens with a non-finite log-prob, score or KL",
        None,
    ),
    ("ctrl/beta", "beta_unit", "KL coefficient used in the step, in the study's beta_unit", None),
    (
        "ctrl/beta_next",
        "beta_unit",
        "KL coefficient that the controller sets for the next step",
        None,
    ),
    (
        "ctrl/coefficient",
        "1",
        "The same coefficient as it multiplies the KL in the loss or reward",
        None,
    ),
    (
        "ctrl/target",
        "kl_unit",
        "Set point of the controller in the step, in the study's kl_unit; absent without one",
        None,
    ),
    (
        "ctrl/kl_ema",
        "kl_unit",
        "KL as the controller sees it, smoothed by control.ema; absent without smoothing",
        None,
    ),
    (
        "ctrl/at_bound",
        "0 or 1",
        "Whether beta was held at control.beta_min or beta_max; absent where fixed",
        None,
    ),
    (
        "tokens/completion_mean",
        "tokens",
        "Mean completion length, the first stop token included",
        "completions/mean_length",
    ),
    ("tokens/completion_min", "tokens", "Shortest completion", "completions/min_length"),
    ("tokens/completion_max", "tokens", "Longest completion", "completions/max_length"),
    (
        "tokens/truncated_frac",
        "share of completions",
        "Completions cut at the length limit",
        "completions/clipped_ratio",
    ),
    (
        "tokens/repeated_frac",
        "share of trigrams",
        "Runs of three tokens that the same completion had before; 0 where none has three",
        None,
    ),
    ("tokens/step", "tokens", "Valid completion tokens of the step", None),
    ("time/rollout_s", "s", "Sampling of completions, this slot's share", None),
    ("time/score_s", "s", "Scoring by the proxy", None),
    ("time/reference_s", "s", "The reference's forwards, this slot's share", None),
    ("time/logprobs_s", "s", "The policy's forwards, log-probs and exact KL, its share", None),
    ("time/update_s", "s", "Gradients and optimiser, this slot's share", None),
    ("time/step_s", "s", "The whole step, this slot's share", None),
    ("compute/step_gflop", "GFLOP", "Useful operations of the step (trainer/flops.py)", None),
)
