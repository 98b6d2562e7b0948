"""A finished step in, its numbers by registered name out. Measuring changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kltune.metrics.record import StepMetrics
from kltune.spec.trial import ControllerKind
from kltune.trainer import kl
from kltune.trainer.batch import Batch, SlotOutcome, UpdateResult
from kltune.trainer.logprobs import Logprobs
from kltune.trainer.parts import BankParts
from kltune.trainer.reduce import group_std, sequence_mean, token_mean

PHASES = ("rollout", "score", "logprobs", "update")


def shared_seconds(clock: Sequence[float], num_slots: int) -> dict[str, float]:
    """Seconds per phase, divided by the slots that shared them."""
    seconds = {
        f"time/{phase}_s": (end - start) / num_slots
        for phase, start, end in zip(PHASES, clock, clock[1:], strict=False)
    }
    return {**seconds, "time/step_s": (clock[-1] - clock[0]) / num_slots}


def count_nonfinite(logprobs: Logprobs, mask_KNT: Tensor, row: int) -> int:
    """Valid tokens of a slot with a non-finite log-prob or KL."""
    good_NT = (
        torch.isfinite(logprobs.policy_KNT[row])
        & torch.isfinite(logprobs.reference_KNT[row])
        & torch.isfinite(logprobs.exact_kl_KNT[row])
    )
    return int((~good_NT & mask_KNT[row]).sum())


def exact_kl(logprobs: Logprobs, mask_KNT: Tensor, row: int) -> tuple[float, float]:
    """(nats per token, nats per sequence) of one slot."""
    values_NT, mask_NT = logprobs.exact_kl_KNT[row], mask_KNT[row]
    return float(token_mean(values_NT, mask_NT)), float(sequence_mean(values_NT, mask_NT))


def step_metrics(
    parts: BankParts,
    batch: Batch,
    result: UpdateResult,
    outcome: SlotOutcome,
    seconds: dict[str, float],
) -> StepMetrics:
    """Everything that one slot measured in one step."""
    row = outcome.row
    state = batch.states[row]
    tokens = int(batch.rollout.mask_KNT[row].sum())
    proxy_N = batch.proxy_KN[row]
    terms = result.terms[row]
    advantages = result.advantages[row]
    values = {
        **_distances(batch, result, outcome),
        **_lengths(batch, row, tokens),
        **seconds,
        "train/proxy_mean": float(proxy_N.mean()),
        "train/proxy_std": float(
            group_std(proxy_N.view(-1, parts.settings.trainer.group_size)).mean()
        ),
        "train/reward_mean": float(advantages.reward_N.mean()),
        "train/advantage_std": float(advantages.advantage_N.std()),
        "train/loss": sum(float(term.loss.detach()) for term in terms),
        "train/loss_policy": sum(term.policy for term in terms),
        "train/loss_kl": sum(term.kl for term in terms),
        "train/grad_norm": outcome.grad_norm,
        "train/clip_frac": sum(term.clipped_tokens for term in terms) / max(1, tokens),
        "train/zero_group_frac": advantages.zero_group_frac,
        "train/entropy_token": float(
            token_mean(result.logprobs.entropy_KNT[row], batch.rollout.mask_KNT[row])
        ),
        "train/learning_rate": state.spec.learning_rate,
        "train/nonfinite_tokens": float(outcome.nonfinite_tokens),
        "ctrl/beta": outcome.beta,
        "ctrl/beta_next": outcome.beta_next,
        "ctrl/coefficient": outcome.coefficient,
    }
    if state.spec.controller is ControllerKind.PROPORTIONAL and state.spec.target_kl is not None:
        values["ctrl/target"] = state.spec.target_kl
    return StepMetrics(
        slot=batch.slots[row],
        trial_number=state.trial_number,
        step=outcome.step,
        kl_token=outcome.kl_token,
        kl_seq=outcome.kl_seq,
        proxy=values["train/proxy_mean"],
        beta=outcome.beta,
        tokens=tokens,
        is_finite=outcome.is_finite,
        values=values,
    )


def _distances(batch: Batch, result: UpdateResult, outcome: SlotOutcome) -> dict[str, float]:
    row = outcome.row
    mask_NT = batch.rollout.mask_KNT[row]
    policy_NT = result.logprobs.policy_KNT[row]
    log_ratio_NT = policy_NT - result.logprobs.reference_KNT[row]
    sampler_NT = batch.rollout.sampler_logprobs_KNT[row] - policy_NT
    return {
        "kl/exact_token": outcome.kl_token,
        "kl/exact_seq": outcome.kl_seq,
        "kl/k1_token": float(token_mean(kl.k1(log_ratio_NT), mask_NT)),
        "kl/k1_seq": float(sequence_mean(kl.k1(log_ratio_NT), mask_NT)),
        "kl/k2_token": float(token_mean(kl.k2(log_ratio_NT), mask_NT)),
        "kl/k3_token": float(token_mean(kl.k3(log_ratio_NT), mask_NT)),
        "kl/sampler_token": float(token_mean(sampler_NT, mask_NT)),
    }


def _lengths(batch: Batch, row: int, tokens: int) -> dict[str, float]:
    lengths_N = batch.rollout.lengths_KN[row]
    return {
        "tokens/completion_mean": float(lengths_N.float().mean()),
        "tokens/completion_min": float(lengths_N.min()),
        "tokens/completion_max": float(lengths_N.max()),
        "tokens/truncated_frac": 1.0 - float(batch.rollout.ended_KN[row].float().mean()),
        "tokens/step": float(tokens),
    }
