"""The registry of metrics: every name that may be recorded, with its unit and meaning.

Names are ``<group>/<what>[_<unit>]``. ``trl`` is TRL's name for the same number, given only
where it means the same; the JSONL record carries the value under both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from kltune.metrics.gold_names import is_gold_metric

Scope = Literal["step", "eval", "study"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity that may be recorded."""

    name: str
    unit: str
    meaning: str
    scope: Scope
    """``step``: once a training step; ``eval``: once an evaluation; ``study``: on the whole study."""
    trl: str | None = None
    """The name of the same number in TRL's logs."""


_NAT_TOKEN = "nats/token"
_NAT_SEQ = "nats/sequence"
_PROXY = "proxy reward"
_GOLD = "gold"

_STEP: tuple[tuple[str, str, str, str | None], ...] = (
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
    ("train/advantage_std", "1", "Standard deviation of the advantages over the rollout", None),
    (
        "train/unscored_frac",
        "share of completions",
        "Completions that the proxy could not score (None or NaN): they take part in no baseline",
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
    ("tokens/step", "tokens", "Valid completion tokens of the step", None),
    ("time/rollout_s", "s", "Sampling of completions, this slot's share", None),
    ("time/score_s", "s", "Scoring by the proxy", None),
    ("time/reference_s", "s", "The reference's forwards, this slot's share", None),
    ("time/logprobs_s", "s", "The policy's forwards, log-probs and exact KL, its share", None),
    ("time/update_s", "s", "Gradients and optimiser, this slot's share", None),
    ("time/step_s", "s", "The whole step, this slot's share", None),
    ("compute/step_gflop", "GFLOP", "Useful operations of the step (trainer/flops.py)", None),
)

_EVAL: tuple[tuple[str, str, str], ...] = (
    ("eval/gold", _GOLD, "Mean gold on the select prompts (samples of a prompt averaged first)"),
    ("eval/gold_se", _GOLD, "Standard error of eval/gold over prompts"),
    ("eval/proxy", _PROXY, "Mean proxy on the select prompts"),
    ("eval/proxy_se", _PROXY, "Standard error of eval/proxy over prompts"),
    (
        "eval/kl_token",
        _NAT_TOKEN,
        "Exact KL(policy || reference) on the evaluation's samples, mean over tokens",
    ),
    ("eval/kl_seq", _NAT_SEQ, "The same, summed over each completion, mean over completions"),
    (
        "eval/k1_seq",
        _NAT_SEQ,
        "k1 estimate on the evaluation's samples, summed over each completion",
    ),
    ("eval/k3_token", _NAT_TOKEN, "k3 estimate on the evaluation's samples, mean over tokens"),
    (
        "eval/entropy_token",
        _NAT_TOKEN,
        "Entropy of the policy on the evaluation's samples, mean over tokens",
    ),
    ("eval/completion_mean", "tokens", "Mean completion length in the evaluation"),
    (
        "eval/truncated_frac",
        "share of completions",
        "Evaluation completions cut at the length limit",
    ),
    ("time/evaluate_s", "s", "The evaluation, this slot's share"),
    ("compute/evaluate_gflop", "GFLOP", "Useful operations of the evaluation"),
)

_STUDY: tuple[tuple[str, str, str], ...] = (
    ("study/trials_ended", "trials", "Trials that have ended, whatever their state"),
    ("study/best_value", _GOLD, "Best value of a feasible trial so far"),
    (
        "study/bookkeeping_frac",
        "share of wall time",
        "Time spent on Optuna, MLflow and files instead of training",
    ),
)

_ALL: tuple[Metric, ...] = (
    *(Metric(name, unit, meaning, "step", trl) for name, unit, meaning, trl in _STEP),
    *(Metric(name, unit, meaning, "eval") for name, unit, meaning in _EVAL),
    *(Metric(name, unit, meaning, "study") for name, unit, meaning in _STUDY),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ALL})
"""Every metric by its name, in the order of the glossary."""


def check_names(names: Iterable[str]) -> None:
    """Raise `ValueError` for any name that neither the registry holds nor a spec's gold gives rise to."""
    unknown = sorted(n for n in names if n not in METRICS and not is_gold_metric(n))
    if unknown:
        raise ValueError(
            f"unregistered metric {', '.join(map(repr, unknown))}: "
            "give it a unit and a meaning in kltune/metrics/names.py"
        )


def trl_names(values: Mapping[str, float]) -> dict[str, float]:
    """Repeat the values that TRL also logs, under TRL's names."""
    return {
        trl: value
        for name, value in values.items()
        if (metric := METRICS.get(name)) is not None and (trl := metric.trl) is not None
    }
