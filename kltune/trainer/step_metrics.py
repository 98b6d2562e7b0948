"""A finished step in, its numbers by registered name out. Measuring changes nothing.

Shapes: K active slots, N sequences of one slot, T completion tokens.
"""

from __future__ import annotations

import math
from statistics import fmean

import torch
from torch import Tensor

from kltune.metrics.part_names import part_metric
from kltune.metrics.record import StepMetrics
from kltune.spec.trial import ControllerKind
from kltune.trainer import kl
from kltune.trainer.batch import Batch, Credit, Learned, Measured, SlotOutcome, SlotUpdates
from kltune.trainer.critic_loss import explained_variance
from kltune.trainer.flops import StepTokens, step_flops
from kltune.trainer.parts import BankParts
from kltune.trainer.reduce import group_std, sequence_mean, sequence_sum, token_max, token_mean
from kltune.trainer.token_profile import (
    correlation,
    repeated_frac,
    token_profile,
    token_quantiles,
)


def count_nonfinite(measured: Measured, mask_KNT: Tensor, row: int) -> int:
    """Valid tokens of a slot with a non-finite log-prob or KL."""
    logprobs = measured.logprobs
    good_NT = (
        torch.isfinite(logprobs.policy_KNT[row])
        & torch.isfinite(logprobs.reference_KNT[row])
        & torch.isfinite(logprobs.exact_kl_KNT[row])
        & torch.isfinite(measured.start_kl_KNT[row])
    )
    return int((~good_NT & mask_KNT[row]).sum())


def per_unit(values_NT: Tensor, mask_NT: Tensor) -> tuple[float, float]:
    """(nats per token, nats per sequence) of one slot's per-token KL."""
    return float(token_mean(values_NT, mask_NT)), float(sequence_mean(values_NT, mask_NT))


def step_metrics(
    parts: BankParts,
    batch: Batch,
    learned: Learned,
    outcome: SlotOutcome,
    seconds: dict[str, float],
) -> StepMetrics:
    """Everything that one slot measured in one step."""
    row = outcome.row
    state = batch.states[row]
    tokens = int(batch.rollout.mask_KNT[row].sum())
    values = {
        **_distances(parts, batch, learned, outcome),
        **_scores(parts, batch, learned, row),
        **_parts(batch, row),
        **_updates(parts, learned.updates[row], learned.credits[row].kl_clipped_tokens, tokens),
        **_values(batch, learned, row),
        **_lengths(batch, row, tokens),
        **_control(parts, learned.credits[row], outcome, state.spec.controller),
        **seconds,
        "compute/step_gflop": _operations(parts, batch, row) / 1e9,
        "train/entropy_token": float(
            token_mean(learned.measured.logprobs.entropy_KNT[row], batch.rollout.mask_KNT[row])
        ),
        "train/learning_rate": state.spec.learning_rate,
        "train/nonfinite_tokens": float(outcome.nonfinite_tokens),
    }
    return StepMetrics(
        slot=batch.slots[row],
        trial_number=state.trial_number,
        step=outcome.step,
        kl_token=outcome.kl_token,
        kl_seq=outcome.kl_seq,
        proxy=values["train/proxy_mean"],
        beta=outcome.used.beta,
        tokens=tokens,
        is_finite=outcome.is_finite,
        values=values,
        profile=token_profile(
            learned.measured.start_kl_KNT[row],
            batch.rollout.mask_KNT[row],
            parts.settings.trainer.max_new_tokens,
        ),
        score_errors=batch.judged[row].problems if batch.judged else (),
    )


def _parts(batch: Batch, row: int) -> dict[str, float]:
    """What each part of a weighted proxy gave, and how many completions it failed on."""
    if not batch.judged:
        return {}
    judged = batch.judged[row]
    known = {n: [v for v in vs if not math.isnan(v)] for n, vs in judged.parts.items()}
    values = {part_metric(name): fmean(scores) for name, scores in known.items() if scores}
    count = len(judged.problems)
    return {**values, "train/score_errors": float(count)} if count else values


def _operations(parts: BankParts, batch: Batch, row: int) -> float:
    """Useful floating-point operations of one slot's step."""
    group_size = parts.settings.trainer.group_size
    drawn = batch.rollout.only(row)
    tokens = StepTokens.of_masks(drawn.prompts.mask, drawn.mask_KNT[0], group_size)
    return step_flops(parts.size, parts.adapter_parameters, tokens, parts.passes).total


def _distances(
    parts: BankParts, batch: Batch, learned: Learned, outcome: SlotOutcome
) -> dict[str, float]:
    row = outcome.row
    logprobs = learned.measured.logprobs
    mask_NT = batch.rollout.mask_KNT[row]
    policy_NT = logprobs.policy_KNT[row]
    log_ratio_NT = policy_NT - logprobs.reference_KNT[row]
    sampler_NT = batch.rollout.sampler_logprobs_KNT[row] - policy_NT
    forward = float(token_mean(logprobs.forward_kl_KNT[row], mask_NT))
    k1_N = sequence_sum(kl.k1(log_ratio_NT), mask_NT)
    start_NT = learned.measured.start_kl_KNT[row]
    median, p95, p99 = token_quantiles(start_NT, mask_NT, (0.5, 0.95, 0.99))
    found = {
        "kl/exact_token": outcome.kl_token,
        "kl/exact_seq": outcome.kl_seq,
        "kl/exact_p50_token": median,
        "kl/exact_p95_token": p95,
        "kl/exact_p99_token": p99,
        "kl/exact_max_token": float(token_max(start_NT, mask_NT)),
        "kl/forward_token": forward,
        "kl/jeffreys_token": outcome.anchor_kl_token + forward,
        "kl/k1_token": float(token_mean(kl.k1(log_ratio_NT), mask_NT)),
        "kl/k1_seq": float(k1_N.mean()),
        "kl/k2_token": float(token_mean(kl.k2(log_ratio_NT), mask_NT)),
        "kl/k3_token": float(token_mean(kl.k3(log_ratio_NT), mask_NT)),
        "kl/sampler_token": float(token_mean(sampler_NT, mask_NT)),
    }
    if len(k1_N) > 1:
        found["kl/k1_seq_se"] = float(k1_N.std() / len(k1_N) ** 0.5)
    if parts.rows.has_reference:
        found["kl/anchor_token"] = outcome.anchor_kl_token
        found["kl/anchor_seq"] = outcome.anchor_kl_seq
    return found


def _scores(parts: BankParts, batch: Batch, learned: Learned, row: int) -> dict[str, float]:
    credit = learned.credits[row]
    shaped = batch.shaped[row]
    scored_N = shaped.is_scored_N
    known = batch.proxy_KN[row][scored_N]
    group_size = parts.settings.trainer.group_size
    groups = batch.proxy_KN[row].view(-1, group_size).tolist()
    counted = [[x for x in group if not math.isnan(x)] for group in groups]
    spreads = [float(group_std(torch.tensor(group))) for group in counted if len(group) > 1]
    worth_NT = credit.advantages.advantage_NT
    valid_NT = batch.rollout.mask_KNT[row] & scored_N[:, None]
    # A completion's own advantage: the mean over its tokens (the same number but under reward-to-go).
    advantage_N = worth_NT.sum(dim=-1) / valid_NT.sum(dim=-1).clamp(min=1)
    kl_N = sequence_sum(learned.measured.start_kl_KNT[row], batch.rollout.mask_KNT[row])
    kl_and_proxy = correlation(kl_N, batch.proxy_KN[row])
    return {
        **({} if math.isnan(kl_and_proxy) else {"train/kl_proxy_corr": kl_and_proxy}),
        "train/proxy_mean": float(known.mean()),
        "train/proxy_std": fmean(spreads) if spreads else 0.0,
        "train/reward_mean": float(credit.advantages.reward_N[scored_N].mean()),
        "train/advantage_std": float(advantage_N[scored_N].std()) if len(known) > 1 else 0.0,
        "train/zero_group_frac": credit.advantages.zero_group_frac,
        "train/unscored_frac": 1.0 - len(known) / len(scored_N),
        "train/score_clipped_frac": shaped.clipped / len(known),
    }


def _updates(
    parts: BankParts, updates: SlotUpdates, clipped_in_reward: int, tokens: int
) -> dict[str, float]:
    """Means over the step's updates; the update KL is that of the last pass."""
    trainer = parts.settings.trainer
    terms = [term for update in updates.terms for term in update]
    num_updates = len(updates.terms)
    seen = max(1, tokens * trainer.epochs)
    kl_shares = [term.grad_kl_share for term in terms if term.grad_kl_share is not None]
    last_pass = [t for update in updates.terms[-trainer.minibatches :] for t in update]
    return {
        "train/loss": sum(float(term.loss) for term in terms) / num_updates,
        "train/loss_policy": sum(term.policy for term in terms) / num_updates,
        "train/loss_kl": sum(term.kl for term in terms) / num_updates,
        "train/loss_entropy": sum(term.entropy for term in terms) / num_updates,
        "train/grad_norm": fmean(updates.norms) if updates.norms else math.nan,
        "train/clip_frac": sum(term.clipped_tokens for term in terms) / seen,
        "train/penalty_clipped_frac": clipped_in_reward / max(1, tokens)
        + sum(term.kl_clipped_tokens for term in terms) / seen,
        # A gradient that was not finite has a norm, but nothing was applied.
        "train/updates": float(sum(map(math.isfinite, updates.norms))),
        "kl/update_token": sum(term.update_kl for term in last_pass) / max(1, tokens),
        **({"train/value_loss": fmean(updates.value_losses)} if updates.value_losses else {}),
        **({"train/grad_kl_share": kl_shares[0]} if kl_shares else {}),
    }


def _values(batch: Batch, learned: Learned, row: int) -> dict[str, float]:
    """How well the critic knew the returns before this step's updates."""
    returns_NT, values_KNT = learned.credits[row].returns_NT, learned.measured.values_KNT
    if returns_NT is None or values_KNT is None:
        return {}
    explained = explained_variance(values_KNT[row], returns_NT, batch.rollout.mask_KNT[row])
    return {} if math.isnan(explained) else {"train/explained_variance": explained}


def _lengths(batch: Batch, row: int, tokens: int) -> dict[str, float]:
    lengths_N = batch.rollout.lengths_KN[row]
    return {
        "tokens/completion_mean": float(lengths_N.float().mean()),
        "tokens/completion_min": float(lengths_N.min()),
        "tokens/completion_max": float(lengths_N.max()),
        "tokens/truncated_frac": 1.0 - float(batch.rollout.ended_KN[row].float().mean()),
        "tokens/repeated_frac": repeated_frac(
            batch.rollout.ids_KNT[row], batch.rollout.mask_KNT[row]
        ),
        "tokens/step": float(tokens),
    }


def _control(
    parts: BankParts, credit: Credit, outcome: SlotOutcome, kind: ControllerKind
) -> dict[str, float]:
    found = {
        "ctrl/beta": outcome.used.beta,
        "ctrl/beta_next": outcome.control.beta,
        "ctrl/coefficient": credit.prices.coefficient,
    }
    if outcome.used.target is not None:
        found["ctrl/target"] = outcome.used.target
    if kind is not ControllerKind.FIXED:
        found["ctrl/at_bound"] = float(outcome.control.at_bound)
    if parts.settings.control.ema and outcome.control.kl_ema is not None:
        found["ctrl/kl_ema"] = outcome.control.kl_ema
    return found
