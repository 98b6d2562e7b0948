"""Every metric of an evaluation: (name, unit, meaning)."""

from __future__ import annotations

_NAT_TOKEN = "nats/token"
_NAT_SEQ = "nats/sequence"
_PROXY = "proxy reward"
_GOLD = "gold"

EVAL: tuple[tuple[str, str, str], ...] = (
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
    (
        "eval/kl_proxy_corr",
        "1",
        "Correlation over the evaluation's completions of exact KL (sum over tokens) and proxy; absent where "
        "one of them is constant",
    ),
    ("eval/kl_gold_corr", "1", "The same of exact KL and gold"),
    (
        "eval/score_errors",
        "completions",
        "Completions of the evaluation that the proxy failed on and that count as unscored; absent where there are none",
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
