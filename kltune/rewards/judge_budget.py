"""What a judge's requests took and may take at most in, whether another one fits its budget out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kltune.rewards.replies import Messages
from kltune.spec.judge import JudgeSpec

_AROUND: Final = 32
"""Tokens that a server's chat template may put around one message."""
_MILLION: Final = 1e6


@dataclass(frozen=True, slots=True)
class Use:
    """Requests and their tokens."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def __add__(self, other: Use) -> Use:
        """Both together."""
        return Use(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
        )

    @property
    def tokens(self) -> int:
        """Read and written."""
        return self.tokens_in + self.tokens_out

    def money(self, spec: JudgeSpec) -> float | None:
        """In the unit of the prices; none where there are none."""
        if spec.price_in is None or spec.price_out is None:
            return None
        return (self.tokens_in * spec.price_in + self.tokens_out * spec.price_out) / _MILLION


def most_of(spec: JudgeSpec, messages: Messages) -> Use:
    """What one request may take: no token is shorter than a byte, and no reply longer than ``max_tokens``."""
    read = sum(
        len(message["content"].encode("utf-8", "surrogatepass")) + _AROUND for message in messages
    )
    return Use(1, read, spec.max_tokens)


def is_limited(spec: JudgeSpec) -> bool:
    """Whether there is a budget at all."""
    budget = spec.budget
    return any(limit is not None for limit in (budget.calls, budget.tokens, budget.money))


def spent_words(spec: JudgeSpec, used: Use) -> str | None:
    """What of the budget is used up, as words; none where something is left."""
    budget = spec.budget
    if budget.calls is not None and used.calls >= budget.calls:
        return f"{budget.calls} call(s)"
    if budget.tokens is not None and used.tokens >= budget.tokens:
        return f"{budget.tokens} tokens"
    if budget.money is not None and (used.money(spec) or 0.0) >= budget.money:
        return f"{budget.money:g} in money"
    return None


def lacking_words(spec: JudgeSpec, used: Use, most: Use) -> str | None:
    """What one more request may take and the budget has not left; none where it fits whatever it takes."""
    budget, after = spec.budget, used + most
    if budget.calls is not None and after.calls > budget.calls:
        return f"{budget.calls} call(s)"
    if budget.tokens is not None and after.tokens > budget.tokens:
        left = budget.tokens - used.tokens
        return f"up to {most.tokens} tokens, of {budget.tokens} there are {left} left"
    cost = after.money(spec)
    if budget.money is not None and cost is not None and cost > budget.money:
        left, next_one = budget.money - (used.money(spec) or 0.0), most.money(spec) or 0.0
        return f"up to {next_one:g} in money, of {budget.money:g} there is {left:g} left"
    return None
