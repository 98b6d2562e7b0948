"""The numbers of one run over its steps, whatever wrote them: what the rules look at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Quantity(StrEnum):
    """What a number is, with its unit in the name; KL is KL(policy || reference) in nats unless said otherwise."""

    KL_TOKEN = "kl_token"
    """The best KL there is (exact, else k3, else another estimator), mean over tokens."""
    KL_SEQ = "kl_seq"
    """The same per sequence."""
    K1_TOKEN = "k1_token"
    """The signed log-ratio, mean over tokens."""
    K1_SEQ = "k1_seq"
    K1_SEQ_SE = "k1_seq_se"
    """Its standard error over completions."""
    KL_P99_TOKEN = "kl_p99_token"
    KL_MAX_TOKEN = "kl_max_token"
    UPDATE_KL_TOKEN = "update_kl_token"
    """Policy at rollout against policy now: never a distance to the reference."""
    SAMPLER_KL_TOKEN = "sampler_kl_token"
    """Generator against trainer on the same weights."""
    PROXY = "proxy"
    """Mean training reward before any KL."""
    PROXY_STD = "proxy_std"
    """Within a group, where known; else over all completions."""
    ZERO_GROUPS = "zero_groups"
    """Share of groups whose rewards are all equal."""
    ADVANTAGE_STD = "advantage_std"
    GOLD = "gold"
    GOLD_SE = "gold_se"
    BETA = "beta"
    """In whatever unit the run's trainer has it."""
    TARGET = "target"
    """Set point of a KL controller, in the unit of the run's KL."""
    ENTROPY = "entropy"
    """Nats per token."""
    LENGTH = "length"
    """Mean completion length, tokens."""
    TRUNCATED = "truncated"
    """Share of completions cut at the length limit."""
    REPEATED = "repeated"
    """Share of trigrams that the same completion had before."""
    LOSS = "loss"
    LOSS_KL = "loss_kl"
    """Coefficient x KL as it stands in the loss."""
    LOSS_POLICY = "loss_policy"
    GRAD_NORM = "grad_norm"
    LEARNING_RATE = "learning_rate"
    CLIP_FRAC = "clip_frac"
    EXPLAINED_VARIANCE = "explained_variance"
    KL_PROXY_CORR = "kl_proxy_corr"
    """Correlation over completions of KL and proxy."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Values by quantity, one a step; NaN where none was logged at that step."""

    steps: tuple[int, ...]
    """Ascending, each once."""
    values: Mapping[Quantity, tuple[float, ...]]
    """Each as long as ``steps``."""

    def has(self, quantity: Quantity) -> bool:
        """Whether it was logged at any step (a number that is not finite counts as logged: infinity does)."""
        return any(not math.isnan(value) for value in self.values.get(quantity, ()))

    def known(self, quantity: Quantity) -> list[tuple[int, float]]:
        """(step, value) of the steps with a finite value."""
        pairs = zip(self.steps, self.values.get(quantity, ()), strict=False)
        return [(step, value) for step, value in pairs if math.isfinite(value)]

    def up_to(self, step: int) -> Curve:
        """The same run as it was known after ``step``."""
        count = sum(1 for one in self.steps if one <= step)
        cut = {name: values[:count] for name, values in self.values.items()}
        return Curve(self.steps[:count], cut)

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[int, Mapping[Quantity, float]]]) -> Curve:
        """From (step, values) in ascending order of steps."""
        listed: Sequence[tuple[int, Mapping[Quantity, float]]] = list(rows)
        names = {name for _, values in listed for name in values}
        return cls(
            tuple(step for step, _ in listed),
            {n: tuple(float(v.get(n, math.nan)) for _, v in listed) for n in names},
        )
