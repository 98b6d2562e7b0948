"""Completions in, the trainer's log-probs against a plain forward of the transformers model out: the oracle.

One completion at a time, unpadded, with slicing, temperature and log-softmax of its own: nothing of
the trainer's passes is used but the weights. Shapes: M tokens of all the completions, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kltune.trainer.bank import Bank
from kltune.trainer.logprobs import Logprobs
from kltune.trainer.soundness.drawn import Drawn
from kltune.trainer.soundness.facts import OracleFacts

NUM_ROWS = 8
"""Completions that are computed a second time, of lengths as different as they come."""

MOST_SHIFT = 3
"""Positions that a shift is looked for up to."""

EXPLAINED: Final = 0.1
"""A cause explains a gap where at most this share of it is left."""

ROUNDING: Final = {"fp32": 1e-4, "bf16": 2e-2}
"""Mean |difference| in nats that different matrix shapes alone may make."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A completion's plain numbers."""

    logits_TV: Tensor
    """At every position from the prompt's last token to the completion's last, one more than completion tokens."""
    ids_T: Tensor
    """The completion."""


def oracle_facts(bank: Bank, drawn: Drawn, found: Logprobs) -> OracleFacts:
    """``found``: the trainer's numbers at ``drawn`` with the weights that slot 0 holds now."""
    trainer = bank.parts.settings.trainer
    rows = drawn.few(NUM_ROWS)
    lengths = [len(drawn.samples[i].token_ids) for i in rows]
    ours = [found.policy_KNT[0, i, :n].float() for i, n in zip(rows, lengths, strict=True)]
    theirs = [found.reference_KNT[0, i, :n].float() for i, n in zip(rows, lengths, strict=True)]
    policy = _plain(bank, drawn, rows, is_policy=True)
    reference = _plain(bank, drawn, rows, is_policy=False)
    temperature = trainer.temperature
    gaps = _differences(policy, ours, temperature)
    mean = float(gaps.mean())
    fitted, fitted_gap = _fit_temperature(policy, ours, temperature)
    shift, shift_gap = _fit_shift(policy, ours, temperature)
    is_off = not mean <= ROUNDING[trainer.precision]  # a NaN is off too
    return OracleFacts(
        num_completions=len(rows),
        num_tokens=sum(lengths),
        policy_gap=float(gaps.max()),
        reference_gap=float(_differences(reference, theirs, temperature).max()),
        temperature=temperature,
        fitted_temperature=fitted if is_off else None,
        fitted_gap=fitted_gap if is_off else None,
        best_shift=shift if is_off else None,
        shift_gap=shift_gap if is_off else None,
        mean_gap=mean,
        cause=_cause(mean, fitted_gap, shift_gap) if is_off else "none",
    )


@torch.no_grad()
def _plain(bank: Bank, drawn: Drawn, rows: list[int], *, is_policy: bool) -> list[Plain]:
    loaded, stack = bank.parts.loaded, bank.parts.stack
    found: list[Plain] = []
    for row in rows:
        prompt, completion = drawn.prompt_ids[row], drawn.samples[row].token_ids
        ids = torch.tensor([[*prompt, *completion]], device=loaded.device)
        with stack.use(stack.view((0,)) if is_policy else None), loaded.accelerator.autocast():
            logits_SV = loaded.model(input_ids=ids).logits[0, :, : loaded.num_ids]
        found.append(Plain(logits_SV[len(prompt) - 1 :].float(), ids[0, len(prompt) :]))
    return found


def _logprobs(plain: Plain, temperature: float, shift: int = 0) -> Tensor:
    """Of each completion token from the logits ``shift`` positions after those that predict it; NaN where there are none."""
    logprobs_TV = torch.log_softmax(plain.logits_TV / temperature, dim=-1)
    count = len(plain.ids_T)
    at_T = torch.arange(count, device=plain.ids_T.device) + shift
    is_there_T = (at_T >= 0) & (at_T < len(plain.logits_TV))
    picked_TV = logprobs_TV[at_T.clamp(0, len(plain.logits_TV) - 1)]
    picked_T = picked_TV.gather(1, plain.ids_T[:, None])[:, 0]
    return picked_T.where(is_there_T, math.nan)


def _differences(plain: list[Plain], ours: list[Tensor], temperature: float) -> Tensor:
    pairs = zip(plain, ours, strict=True)
    return torch.cat([(_logprobs(p, temperature) - o).abs() for p, o in pairs])


def _fit_temperature(
    plain: list[Plain], ours: list[Tensor], temperature: float
) -> tuple[float, float]:
    """The temperature with the least mean |difference|, by golden section within a factor of 16, and that mean."""

    def left(log_factor: float) -> float:
        return float(_differences(plain, ours, temperature * math.exp(log_factor)).mean())

    best = _golden(left, -math.log(16), math.log(16))
    return temperature * math.exp(best), left(best)


def _golden(function: Callable[[float], float], low: float, high: float) -> float:
    ratio = (math.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = function(a), function(b)
    for _ in range(30):
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = function(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = function(b)
    return (low + high) / 2


def _fit_shift(plain: list[Plain], ours: list[Tensor], temperature: float) -> tuple[int, float]:
    """The shift with the least mean |difference|, and that mean: of the logits under the ids, or of the results."""
    left: dict[int, float] = {}
    for shift in range(-MOST_SHIFT, MOST_SHIFT + 1):
        if shift == 0:
            continue
        by_logits: list[Tensor] = []
        by_results: list[Tensor] = []
        for p, o in zip(plain, ours, strict=True):
            # The tokens at either end have got something from beyond the completion.
            inside = slice(abs(shift), max(abs(shift), len(o) - abs(shift)))
            by_logits.append((_logprobs(p, temperature, shift) - o)[inside])
            by_results.append((_moved(_logprobs(p, temperature), shift) - o)[inside])
        means = [_nanmean(torch.cat(d).abs()) for d in (by_logits, by_results)]
        left[shift] = min(means)
    best = min(left, key=lambda shift: left[shift])
    return best, left[best]


def _moved(values_T: Tensor, shift: int) -> Tensor:
    """What stands ``shift`` places further on; NaN beyond either end."""
    moved_T = torch.full_like(values_T, math.nan)
    if abs(shift) < len(values_T):
        if shift > 0:
            moved_T[:-shift] = values_T[shift:]
        else:
            moved_T[-shift:] = values_T[:shift]
    return moved_T


def _nanmean(values: Tensor) -> float:
    known = values[~values.isnan()]
    return float(known.mean()) if len(known) else math.inf


def _cause(mean: float, fitted_gap: float, shift_gap: float) -> str:
    if not math.isfinite(mean):
        return "unknown"
    name, left = min(("temperature", fitted_gap), ("shift", shift_gap), key=lambda pair: pair[1])
    return name if left <= EXPLAINED * mean else "unknown"
