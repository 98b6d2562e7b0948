"""A job in, verdicts with numbers out: whether the bank on this device computes what it should."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kltune.metrics.record import StepMetrics
from kltune.trainer.bank import Bank
from kltune.trainer.model import LoadedModel
from tests.bench.gpu_model import Distinct, Job, load, make_bank, make_prompts, trial

MOVES = 5e-3
"""Learning rate of the checks: a few steps and the policy is away from the reference."""
AWAY = 0.1
"""As far, nats per token; much farther and it writes one token only, which shows nothing."""
MOST_STEPS = 12
SAMPLER = {"float32": 1e-4, "bfloat16": 0.01}
"""Largest KL of sampler and trainer, nats per token, at KL 0 to the reference."""
STALE = 0.1
"""The same as a share of the KL to the reference: a sampler that forgot the adapters would be at about 1."""
SAME_TOKENS = {"float32": 0.98, "bfloat16": 0.0}
"""Least share of equal tokens. Rounding in bf16 flips one now and then, and all that follow differ."""
SAME_FIRST = {"float32": 0.98, "bfloat16": 0.85}
"""The same of first tokens, which have no history."""

Tokens = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claim."""

    name: str
    holds: bool
    detail: str

    @property
    def line(self) -> str:
        """As it is printed."""
        return f"{'PASS' if self.holds else 'FAIL'}  {self.name}: {self.detail}"


class Watched:
    """A bank of some seeds whose completions are kept."""

    def __init__(self, loaded: LoadedModel, job: Job, seeds: Sequence[int]) -> None:
        self.reward = Distinct()
        prompts = make_prompts(job, 16, uneven=True)
        self.bank: Bank = make_bank(loaded, job, len(seeds), prompts, self.reward)
        for slot, seed in enumerate(seeds):
            self.bank.admit(slot, slot, trial(seed, MOVES), None)

    def step(self) -> tuple[tuple[StepMetrics, ...], list[Tokens]]:
        """One step: what was measured and what each slot wrote."""
        metrics = self.bank.train_step()
        return metrics, self.reward.seen[-len(metrics) :]


def check(job: Job) -> list[Verdict]:
    """Run the bank on short completions of the same model; ``job`` gives shape, device and arithmetic."""
    short = replace(job, completions=16, tokens=min(job.tokens, 32))
    loaded = load(short)
    verdicts = [
        Verdict(
            "own forward",
            loaded.fused is not None,
            "in use" if loaded.fused else "not in use: its numbers are not the model's own",
        )
    ]
    alone, alone_seen = Watched(loaded, short, [1]).step()
    pair = Watched(loaded, short, [0, 1])
    first, seen = pair.step()
    verdicts.append(_start_verdict([*first, *alone]))
    verdicts.append(_agreement("K = 2 against alone", seen[1], alone_seen[0], short.dtype))
    moved, steps = first, 1
    while steps < MOST_STEPS and min(m.kl_token for m in moved) < AWAY:
        (moved, _), steps = pair.step(), steps + 1
    verdicts.append(_sampler_verdict(first, moved, steps, short.dtype))
    pair.bank.evict(0)
    pair.bank.admit(0, 2, trial(1, MOVES), None)
    refilled, seen = pair.step()
    fresh = next(m for m in refilled if m.slot == 0)
    verdicts.append(
        _agreement("a refilled slot against alone", seen[0], alone_seen[0], short.dtype, fresh)
    )
    return verdicts


def _start_verdict(metrics: Sequence[StepMetrics]) -> Verdict:
    largest = max(abs(m.kl_token) for m in metrics)
    holds = largest == 0.0 and all(m.is_finite for m in metrics)
    return Verdict("KL to the reference is exactly 0 at the start", holds, f"largest {largest:.3g}")


def _sampler_verdict(
    first: Sequence[StepMetrics], moved: Sequence[StepMetrics], steps: int, dtype: str
) -> Verdict:
    start = max(abs(m.values["kl/sampler_token"]) for m in first)
    later = max(abs(m.values["kl/sampler_token"]) for m in moved)
    kl = min(m.kl_token for m in moved)
    limit = SAMPLER[dtype]
    holds = start <= limit and later <= limit + STALE * kl and kl > 2 * limit
    return Verdict(
        "sampler and trainer agree",
        holds,
        f"{start:.2e} nats per token at the start, {later:.2e} in step {steps} at KL {kl:.3g} "
        f"to the reference (limit {limit:g} + {STALE:g} x KL)",
    )


def _agreement(
    name: str, seen: Tokens, alone: Tokens, dtype: str, fresh: StepMetrics | None = None
) -> Verdict:
    pairs = [(a, b) for x, y in zip(seen, alone, strict=True) for a, b in zip(x, y, strict=True)]
    tokens = sum(a == b for a, b in pairs) / len(pairs)
    starts = sum(x[0] == y[0] for x, y in zip(seen, alone, strict=True)) / len(seen)
    whole = sum(x == y for x, y in zip(seen, alone, strict=True)) / len(seen)
    holds = tokens >= SAME_TOKENS[dtype] and starts >= SAME_FIRST[dtype]
    detail = (
        f"first tokens equal {starts:.1%}, all tokens {tokens:.1%}, whole completions {whole:.1%} "
        f"of {len(seen)}"
    )
    if fresh is not None:
        holds = holds and fresh.kl_token == 0.0
        detail += f"; KL {fresh.kl_token:.3g}"
    return Verdict(name, holds, detail)
