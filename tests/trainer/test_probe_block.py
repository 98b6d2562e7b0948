"""One block's gradients are those of the losses that they are named after, whatever the micro-batch."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import torch

from kltune.spec.penalty import Penalty
from kltune.trainer.bank import Bank
from kltune.trainer.micro_batch import MicroBatch
from kltune.trainer.penalty_gradients import FULL, LOCAL, POLICY, Terms
from kltune.trainer.probe import ProbeSettings, probe
from kltune.trainer.probe_block import Look, ProbeBlock


def pushed_bank(**trainer: object) -> tuple[Bank, oracle.Recorder]:
    bank, proxy, _ = oracle.recorded_bank(1, **trainer)
    bank.parts.stack.reset(0, 0)
    oracle.push(bank, 0)
    return bank, proxy


def one_block(bank: Bank, size: int | None = None) -> ProbeBlock:
    settings = ProbeSettings(num_blocks=1, prompts_per_block=2)
    if size is None:
        (block,) = probe(bank.parts, 0, bank.parts.data.train, tuple(Penalty), settings)
        return block
    # The same draws, looked at a few rows at a time.
    from kltune.trainer import probe as module

    rows, indices = module._drawn(bank.parts, 0, bank.parts.data.train, settings, 0)
    trainer = bank.parts.settings.trainer
    terms = Terms(tuple(Penalty), trainer.credit, None, trainer.group_size)
    look = Look(bank.parts, 0, bank.parts.data.train, terms, True, None, MicroBatch(8, size))
    return look.at(rows, [i for i in indices for _ in range(4)], None)


def test_gradients_equal_those_of_the_losses_written_out_in_float64() -> None:
    bank, proxy = pushed_bank()
    block = one_block(bank)
    (samples,) = proxy.calls
    texts = oracle.Texts(bank.parts.stack.flat_KP[0], bank.parts.stack, samples)
    now, ref = texts.sampled()
    u = now - ref
    exact = torch.cat(
        [(p.exp() * (p - r)).sum(-1) for p, r in zip(texts.policy, texts.reference, strict=True)]
    )
    forward = torch.cat(
        [(r.exp() * (r - p)).sum(-1) for p, r in zip(texts.policy, texts.reference, strict=True)]
    )
    expected = {
        "k2-loss": u**2 / 2,
        "k3-loss": torch.exp(-u) - 1 + u,
        "k1-loss": u,
        "abs-loss": u.abs(),
        "exact-loss": exact,
        "forward-loss": forward,
        "jeffreys-loss": exact + forward,
        LOCAL: exact,
    }
    for name, tokens in expected.items():
        (gradient,) = torch.autograd.grad(
            tokens.sum() / len(samples), texts.flat_P, retain_graph=True
        )
        found = torch.from_numpy(block.gradients[name])
        assert oracle.relative_error(found, gradient) < 1e-4, name


def test_the_whole_sequence_s_gradient_pays_later_positions_only() -> None:
    # A position's own exact KL has no expected pull, so paying it as well would only add noise.
    bank, proxy = pushed_bank(
        kl={"clip": 1e6}
    )  # no token meets it, but the penalty's part is its own
    block = one_block(bank)
    (samples,) = proxy.calls
    texts = oracle.Texts(bank.parts.stack.flat_KP[0], bank.parts.stack, samples)
    now, _ = texts.sampled()
    width = max(texts.lengths)
    exact = [
        (p.exp() * (p - r)).sum(-1) for p, r in zip(texts.policy, texts.reference, strict=True)
    ]
    later = torch.zeros(len(samples), width, dtype=torch.float64)
    for i, part in enumerate(exact):
        kl = part.detach()
        later[i, : len(kl)] = kl.flip(0).cumsum(0).flip(0) - kl
    by_group = later.view(-1, 4, width)
    worth = -(by_group - (by_group.sum(1, keepdim=True) - by_group) / 3).view(-1, width)
    flat = torch.cat([row[:length] for row, length in zip(worth, texts.lengths, strict=True)])
    loss = (torch.cat(exact).sum() - (flat * now).sum()) / len(samples)
    (gradient,) = torch.autograd.grad(loss, texts.flat_P)
    for name in (FULL, "exact-full"):
        assert oracle.relative_error(torch.from_numpy(block.gradients[name]), gradient) < 1e-4, name


def test_what_is_paid_in_the_reward_is_less_the_other_completions_mean() -> None:
    bank, proxy = pushed_bank()
    block = one_block(bank)
    (samples,) = proxy.calls
    texts = oracle.Texts(bank.parts.stack.flat_KP[0], bank.parts.stack, samples)
    now, ref = texts.sampled()
    u = (now - ref).detach()
    width = max(texts.lengths)
    to_go = torch.zeros(len(samples), width, dtype=torch.float64)
    for i, part in enumerate(u.split(texts.lengths)):
        to_go[i, : len(part)] = part.flip(0).cumsum(0).flip(0)
    by_group = to_go.view(-1, 4, width)
    worth = -(by_group - (by_group.sum(1, keepdim=True) - by_group) / 3).view(-1, width)
    flat = torch.cat([row[:length] for row, length in zip(worth, texts.lengths, strict=True)])
    loss = -(flat * now).sum() / len(samples)
    (gradient,) = torch.autograd.grad(loss, texts.flat_P)
    found = torch.from_numpy(block.gradients["k1-reward"])
    assert oracle.relative_error(found, gradient) < 1e-4


@pytest.mark.parametrize("algorithm", ["grpo", "dr-grpo", "rloo", "reinforce", "ppo"])
def test_every_algorithm_has_a_policy_gradient(algorithm: str) -> None:
    bank, _ = pushed_bank(algorithm=algorithm)
    gradient = one_block(bank).gradients[POLICY]
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 0


def test_the_policy_gradient_is_that_of_the_spec_s_algorithm() -> None:
    bank, proxy = pushed_bank()
    block = one_block(bank)
    (samples,) = proxy.calls
    texts = oracle.Texts(bank.parts.stack.flat_KP[0], bank.parts.stack, samples)
    now, _ = texts.sampled()
    score = torch.tensor(proxy.inner(samples), dtype=torch.float64).view(-1, 4)
    worth = ((score - score.mean(1, keepdim=True)) / (score.std(1, keepdim=True) + 1e-4)).flatten()
    per_token = worth.repeat_interleave(torch.tensor(texts.lengths))
    (gradient,) = torch.autograd.grad(-(per_token * now).sum() / len(samples), texts.flat_P)
    assert oracle.relative_error(torch.from_numpy(block.gradients[POLICY]), gradient) < 1e-4


@pytest.mark.parametrize("size", [1, 2, 4])
def test_micro_batches_change_nothing(size: int) -> None:
    bank, _ = pushed_bank()
    whole, pieces = one_block(bank), one_block(bank, size)
    for name, gradient in whole.gradients.items():
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(
            pieces.gradients[name], gradient, atol=2e-5 * scale, err_msg=name
        )
    np.testing.assert_allclose(pieces.exact_NT, whole.exact_NT, atol=1e-6)


def test_a_reference_that_moved_is_the_one_that_counts() -> None:
    bank, _ = pushed_bank(reference={"every": 2})
    for row in bank.parts.rows.of(0):
        bank.parts.stack.flat_KP[row].copy_(bank.parts.stack.flat_KP[0])
    block = one_block(bank)
    assert np.abs(block.exact_NT).max() < 1e-5
    assert np.abs(block.gradients[FULL]).max() < 1e-3
