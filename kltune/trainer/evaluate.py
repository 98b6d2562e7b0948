"""Slots in, what they are worth on prompts they do not train on out: gold, proxy and exact KL to the start.

Trains nothing and moves no stream: the uniforms of an evaluation are keyed by the
trial's seed and the row alone, so every trial of a seed is judged on the same draws at
every step. Shapes: K slots, E prompts, S samples per prompt, T completion tokens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kltune.metrics.record import EvalMetrics, EvalSample, OtherGold, TokenOutlier
from kltune.tasks.protocol import Prompt, Sample
from kltune.trainer import kl
from kltune.trainer.data import samples_of, spread_evenly
from kltune.trainer.flops import StepTokens, evaluation_flops
from kltune.trainer.keyed import Purpose, uniforms
from kltune.trainer.logprobs import Completions, Logprobs, score
from kltune.trainer.micro_batch import MicroBatch, within_memory
from kltune.trainer.outliers import token_outliers
from kltune.trainer.parts import BankParts
from kltune.trainer.reduce import sequence_mean, sequence_sum, token_mean
from kltune.trainer.rollout import Rollout, rollout
from kltune.trainer.score import score_batch, score_samples
from kltune.trainer.slot import SlotState
from kltune.trainer.token_profile import correlation


@dataclass(frozen=True, slots=True)
class Judged:
    """Completions of some prompts by all evaluated slots, with their numbers."""

    rollout: Rollout
    logprobs: Logprobs


def evaluate(
    parts: BankParts, states: Mapping[int, SlotState], slots: Sequence[int], micro: MicroBatch
) -> tuple[EvalMetrics, ...]:
    """Judge ``slots`` at their present weights; ``micro`` counts prompts that are judged at once.

    Raises:
        TrialFault: a scorer failed, or memory ran out.
    """
    start = time.perf_counter()
    chosen = spread_evenly(len(parts.data.select), parts.settings.evaluate.prompts)
    # With fixed shapes all slots share products; else they would change each other's last bits.
    is_each_alone = parts.slot_by_slot and parts.settings.compact
    judged: list[tuple[int, list[Judged], int]] = []
    for some in [(slot,) for slot in slots] if is_each_alone else [tuple(slots)]:
        pieces = within_memory(
            lambda some=some: micro.run(lambda size: _judge(parts, states, some, chosen, size)),
            some[-1],
        )
        judged += [(slot, pieces, row) for row, slot in enumerate(some)]
    seconds = (time.perf_counter() - start) / len(slots)
    prompts = [parts.data.select.prompts[i] for i in chosen]
    return tuple(
        _metrics(parts, states[slot], slot, _rows_of(parts, pieces, row, prompts), seconds)
        for slot, pieces, row in judged
    )


@torch.no_grad()
def _judge(
    parts: BankParts,
    states: Mapping[int, SlotState],
    slots: Sequence[int],
    chosen: Sequence[int],
    size: int,
) -> list[Judged]:
    """Completions and log-probs, ``size`` prompts of every slot at a time."""
    samples = parts.settings.evaluate.samples
    length = parts.settings.trainer.max_new_tokens
    rows = len(chosen) * samples
    draws = parts.to_device(
        [uniforms(states[slot].spec.seed, Purpose.EVALUATION, 0, rows, length) for slot in slots]
    )
    view = parts.stack.view(slots)
    pieces: list[Judged] = []
    for first in range(0, len(chosen), size):
        part = chosen[first : first + size]
        prompts = parts.data.select.pad(
            list(part) * len(slots),
            parts.loaded.pad_id,
            parts.loaded.device,
            full_width=not parts.settings.compact,
        )
        cut = draws[:, first * samples : (first + len(part)) * samples]
        drawn = rollout(parts.loaded, prompts, cut, parts.sampling(samples), (parts.stack, view))
        logprobs = score(parts.loaded, parts.stack, view, Completions.of(drawn), parts.scoring)
        pieces.append(Judged(drawn, logprobs))
    return pieces


@dataclass(frozen=True, slots=True)
class _Rows:
    """One slot's completions over all pieces, by prompt then sample."""

    samples: list[Sample]
    exact_seq: list[float]
    kl_token: float
    kl_seq: float
    k1_seq: float
    k3_token: float
    entropy_token: float
    gflop: float
    """Useful operations / 1e9."""
    outliers: tuple[TokenOutlier, ...]


def _rows_of(
    parts: BankParts, pieces: Sequence[Judged], row: int, prompts: Sequence[Prompt]
) -> _Rows:
    per_prompt = parts.settings.evaluate.samples
    samples: list[Sample] = []
    for piece in pieces:
        first = len(samples) // per_prompt
        count = piece.rollout.mask_KNT.shape[1] // per_prompt
        repeated = [p for p in prompts[first : first + count] for _ in range(per_prompt)]
        samples += samples_of(parts.loaded, piece.rollout, row, repeated)

    def joined(name: str) -> Tensor:
        return _pad_and_join([getattr(piece.logprobs, name)[row] for piece in pieces])

    mask_RT = _pad_and_join([piece.rollout.mask_KNT[row] for piece in pieces])
    exact_RT = joined("exact_kl_KNT")
    policy_RT, reference_RT = joined("policy_KNT"), joined("reference_KNT")
    log_ratio_RT = policy_RT - reference_RT
    return _Rows(
        samples=samples,
        exact_seq=sequence_sum(exact_RT, mask_RT).tolist(),
        kl_token=float(token_mean(exact_RT, mask_RT)),
        kl_seq=float(sequence_mean(exact_RT, mask_RT)),
        k1_seq=float(sequence_mean(kl.k1(log_ratio_RT), mask_RT)),
        k3_token=float(token_mean(kl.k3(log_ratio_RT), mask_RT)),
        entropy_token=float(token_mean(joined("entropy_KNT"), mask_RT)),
        gflop=_operations(parts, pieces, row) / 1e9,
        outliers=token_outliers(
            parts.loaded.tokenizer, samples, (exact_RT, policy_RT, reference_RT), mask_RT
        ),
    )


def _operations(parts: BankParts, pieces: Sequence[Judged], row: int) -> float:
    per_prompt = parts.settings.evaluate.samples
    counts = [
        StepTokens.of_masks(one.prompts.mask, one.mask_KNT[0], per_prompt)
        for one in (piece.rollout.only(row) for piece in pieces)
    ]
    total = counts[0]
    for count in counts[1:]:
        total = total + count
    return evaluation_flops(parts.size, parts.adapter_parameters, total)


def _pad_and_join(pieces: Sequence[Tensor]) -> Tensor:
    width = max(piece.shape[-1] for piece in pieces)
    return torch.cat([torch.nn.functional.pad(p, (0, width - p.shape[-1])) for p in pieces])


def _metrics(
    parts: BankParts, state: SlotState, slot: int, rows: _Rows, seconds: float
) -> EvalMetrics:
    gold = score_samples(parts.data.gold, rows.samples, slot)
    judged = score_batch(parts.data.proxy, rows.samples, slot, may_skip=True)
    proxy = judged.values
    others = {n: score_samples(judge, rows.samples, slot) for n, judge in parts.data.golds.items()}
    gold_E, proxy_E = _by_prompt(parts, gold), _by_prompt(parts, proxy)
    # A prompt whose every completion is unscorable has no proxy.
    known_E = proxy_E[~proxy_E.isnan()]
    lengths = [len(sample.token_ids) for sample in rows.samples]
    exact_R = torch.tensor(rows.exact_seq)
    related = {
        "eval/kl_proxy_corr": correlation(exact_R, torch.tensor(proxy)),
        "eval/kl_gold_corr": correlation(exact_R, torch.tensor(gold)),
    }
    values = {
        **{name: value for name, value in related.items() if not math.isnan(value)},
        "eval/gold": float(gold_E.mean()),
        "eval/gold_se": _standard_error(gold_E),
        "eval/proxy": float(known_E.mean()),
        "eval/proxy_se": _standard_error(known_E),
        "eval/kl_token": rows.kl_token,
        "eval/kl_seq": rows.kl_seq,
        "eval/k1_seq": rows.k1_seq,
        "eval/k3_token": rows.k3_token,
        "eval/entropy_token": rows.entropy_token,
        "eval/completion_mean": sum(lengths) / len(lengths),
        "eval/truncated_frac": sum(not s.ended for s in rows.samples) / len(rows.samples),
        "time/evaluate_s": seconds,
        "compute/evaluate_gflop": rows.gflop,
        **({"eval/score_errors": float(len(judged.problems))} if judged.problems else {}),
    }
    return EvalMetrics(
        slot=slot,
        trial_number=state.trial_number,
        step=state.step,
        gold=values["eval/gold"],
        gold_se=values["eval/gold_se"],
        proxy=values["eval/proxy"],
        proxy_se=values["eval/proxy_se"],
        kl_token=rows.kl_token,
        kl_seq=rows.kl_seq,
        gold_by_prompt=tuple(gold_E.tolist()),
        proxy_by_prompt=tuple(proxy_E.tolist()),
        values=values,
        samples=_kept(parts, rows, gold, proxy, others),
        others={name: _other(_by_prompt(parts, scores)) for name, scores in others.items()},
        outliers=rows.outliers,
        score_errors=judged.problems,
    )


def _other(gold_E: Tensor) -> OtherGold:
    return OtherGold(float(gold_E.mean()), _standard_error(gold_E), tuple(gold_E.tolist()))


def _by_prompt(parts: BankParts, scores: Sequence[float]) -> Tensor:
    per_prompt = parts.settings.evaluate.samples
    return torch.tensor(scores, dtype=torch.float64).view(-1, per_prompt).nanmean(dim=1)


def _standard_error(values_E: Tensor) -> float:
    """Of the mean over prompts; 0 where there is one prompt, since nothing can be said."""
    return float(values_E.std() / len(values_E) ** 0.5) if len(values_E) > 1 else 0.0


def _kept(
    parts: BankParts,
    rows: _Rows,
    gold: Sequence[float],
    proxy: Sequence[float],
    others: Mapping[str, Sequence[float]],
) -> tuple[EvalSample, ...]:
    """The first sample of some prompts, evenly spread: the same prompts at every step and in every trial.

    Or every sample, by prompt then sample, where the bank keeps all.
    """
    per_prompt = parts.settings.evaluate.samples
    num_prompts = len(rows.samples) // per_prompt
    kept = min(parts.settings.evaluate.keep, num_prompts)
    indices = [i * per_prompt for i in spread_evenly(num_prompts, kept)] if kept else []
    if parts.settings.keep_all:
        indices = list(range(len(rows.samples)))
    return tuple(
        EvalSample(
            prompt_id=rows.samples[i].prompt.id,
            prompt=rows.samples[i].prompt.text,
            completion=rows.samples[i].thought + rows.samples[i].text,
            gold=gold[i],
            proxy=proxy[i],
            kl_seq=rows.exact_seq[i],
            num_tokens=len(rows.samples[i].token_ids),
            ended=rows.samples[i].ended,
            golds={name: scores[i] for name, scores in others.items()},
        )
        for i in indices
    )
