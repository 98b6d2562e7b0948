"""Field cases that need a whole bank or another architecture: dropout, padding, the reference, the sampler, cut steps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import families
import pytest
import tiny
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from oracle import push, recorded_bank
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from kltune.spec.model import ModelSpec
from kltune.trainer.bank import Bank
from kltune.trainer.encode import pad_left
from kltune.trainer.head import Head, HeadRule, token_columns
from kltune.trainer.logprobs import Completions, Logprobs, Scoring, score
from kltune.trainer.measure import measure
from kltune.trainer.model import LoadedModel, freeze, place

FULL = ModelSpec(base="builtin:tiny", finetune="full")
CPU = torch.device("cpu")
DROPOUTS = ("resid_pdrop", "embd_pdrop", "attn_pdrop")
COMPACT = Scoring(1.0, only_valid=True)


def gpt2() -> LoadedModel:
    """Learned absolute positions, Conv1D (so that only full fine-tuning takes it), dropout, train mode."""
    config = GPT2Config(
        vocab_size=30, n_embd=32, n_layer=2, n_head=4, n_positions=64, eos_token_id=1,
        bos_token_id=1, **dict.fromkeys(DROPOUTS, 0.1),
    )  # fmt: skip
    model = GPT2LMHeadModel(config).train()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return freeze(model, tiny.tokenizer(), Accelerator(cpu=True))


def bank_of(build: Callable[[], LoadedModel], *, full: bool, **trainer: object) -> Bank:
    """A bank of one slot with a trial that has left the reference by as much as its rate moves it."""
    model = build()
    spec = FULL if full else tiny.MODEL
    bank = Bank(model, tiny.task_data(model), tiny.settings(**trainer), spec, 1)
    bank.admit(0, 0, tiny.trial(beta=0.01, learning_rate=1e-3), None)
    return bank


def scored(bank: Bank, completions: Completions) -> Logprobs:
    with torch.no_grad():
        return score(
            bank.parts.loaded, bank.parts.stack, bank.parts.stack.view([0]), completions, COMPACT
        )


def one_text(width: int | None = None) -> Completions:
    ids = torch.tensor([[[5, 9, 23, 7, 11]]])
    return Completions(pad_left([[4, 8, 15]], 0, CPU, width), ids, torch.ones_like(ids).bool())


KINDS = pytest.mark.parametrize(
    ("build", "full"), [(tiny.loaded, False), (families.opt, False), (gpt2, True)]
)


@pytest.mark.parametrize(("build", "full"), [(families.opt, False), (gpt2, True)])
def test_dropout_in_the_config_changes_no_log_prob(
    tmp_path: Path, build: Callable[[], LoadedModel], full: bool
) -> None:
    # field case A10
    bank = bank_of(build, full=full)
    config = bank.parts.loaded.model.config
    rates = {n: v for n, v in config.to_dict().items() if n in (*DROPOUTS, "dropout")}
    assert set(rates.values()) == {0.1}, "the case must have dropout"
    once, again = (scored(bank, one_text()) for _ in range(2))
    assert torch.equal(once.policy_KNT, again.policy_KNT)
    assert torch.equal(once.reference_KNT, again.reference_KNT)
    (evaluation,) = bank.evaluate([0])
    first, *later = [bank.train_step()[0] for _ in range(3)]
    assert evaluation.kl_seq <= 1e-6
    assert first.kl_token <= 1e-6
    assert later[-1].kl_token > 0
    assert not bank.parts.loaded.model.training
    config.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert {name: saved[name] for name in rates} == rates


@KINDS
def test_log_probs_do_not_depend_on_padding(build: Callable[[], LoadedModel], full: bool) -> None:
    # field case A12
    bank = bank_of(build, full=full)
    bank.train_step()
    push(bank, 0, scale=0.01)
    alone, padded = scored(bank, one_text()), scored(bank, one_text(3 + 7))
    assert float(alone.exact_kl_KNT.max()) > 1e-3, "the case must have left the reference"
    for name in ("policy_KNT", "reference_KNT", "exact_kl_KNT", "entropy_KNT"):
        difference = getattr(alone, name) - getattr(padded, name)
        assert float(difference.abs().max()) <= 1e-4, name


@pytest.mark.parametrize(("build", "full"), [(tiny.loaded, False), (tiny.loaded, True)])
def test_the_reference_stays_while_the_policy_moves_away_from_it(
    build: Callable[[], LoadedModel], full: bool
) -> None:
    # field case A14
    bank = bank_of(build, full=full)

    def base() -> str:
        digest = hashlib.sha256()
        for name, tensor in bank.parts.loaded.model.state_dict().items():
            digest.update(name.encode() + tensor.numpy().tobytes())
        return digest.hexdigest()

    before, policy = base(), bank.parts.stack.flat_KP.clone()
    kls = [bank.train_step()[0].kl_token for _ in range(5)]
    assert base() == before
    assert not torch.equal(bank.parts.stack.flat_KP, policy)
    assert kls[0] == 0.0
    assert min(kls[1:]) > 0


def test_trained_ids_are_the_sampled_ones_and_a_cut_is_a_flag() -> None:
    # field case A28
    bank, proxy, _ = recorded_bank(1)
    bank.admit(0, 0, tiny.trial(seed=2), None)
    drawn = tiny.next_rollout(bank)
    trained: list[Tensor] = []

    def keep(_module: object, _args: object, kwargs: dict[str, Tensor]) -> None:
        if torch.is_grad_enabled():
            trained.append(kwargs["input_ids"])

    bank.parts.loaded.body.register_forward_pre_hook(keep, with_kwargs=True)
    bank.train_step()
    cut = [s for s in proxy.calls[0] if not s.ended]
    assert cut, "the case must have a completion that was cut"
    assert all(len(s.token_ids) == 6 and 1 not in s.token_ids for s in cut)
    ids_NT, mask_NT = drawn.ids_KNT[0], drawn.mask_KNT[0]
    assert [list(s.token_ids) for s in proxy.calls[0]] == [
        ids[mask].tolist() for ids, mask in zip(ids_NT, mask_NT, strict=True)
    ]
    assert [s.ended for s in proxy.calls[0]] == drawn.ended_KN[0].tolist()
    (inputs,) = trained
    assert torch.equal(inputs[:, drawn.prompts.ids.shape[1] :], ids_NT[:, :-1])


def test_a_generation_config_changes_no_rollout() -> None:
    # field case A43: sampled from, and priced by, a plain forward pass
    plain, bent = tiny.bank(1), tiny.bank(1)
    config = bent.parts.loaded.model.generation_config
    assert config is not None
    config.repetition_penalty, config.top_k, config.do_sample = 1.3, 2, True
    for bank in (plain, bent):
        bank.admit(0, 0, tiny.trial(), None)
        push(bank, 0)
    drawn = tiny.next_rollout(bent)
    assert torch.equal(drawn.ids_KNT, tiny.next_rollout(plain).ids_KNT)
    got = scored(bent, Completions.of(drawn))
    difference = (drawn.sampler_logprobs_KNT - got.policy_KNT)[drawn.mask_KNT]
    assert float(difference.abs().max()) <= 1e-5


@KINDS
def test_sampler_and_trainer_agree_at_every_token(
    build: Callable[[], LoadedModel], full: bool
) -> None:
    # field case A47: the ratio of the first inner step is 1
    bank = bank_of(build, full=full)
    bank.train_step()
    push(bank, 0, scale=0.01)
    batch = tiny.next_batch(bank)
    drawn = batch.rollout
    measured = measure(bank.parts, batch, bank.parts.stack.view([0]), bank.parts.scoring, 8)
    gap = (drawn.sampler_logprobs_KNT - measured.logprobs.policy_KNT)[drawn.mask_KNT]
    assert float(gap.abs().max()) <= 1e-5
    logged = bank.train_step()[0].values["kl/sampler_token"]
    assert logged == pytest.approx(float(gap.mean()), abs=1e-7)


@pytest.fixture
def bf16() -> Iterator[Accelerator]:
    """accelerate keeps one precision per process; this test's is its own."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield place("cpu", "bf16")
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("compact", [True, False])
def test_in_bf16_the_kl_of_step_0_is_exactly_zero(bf16: Accelerator, compact: bool) -> None:
    # field case A46: one dtype on both sides
    model = freeze(tiny.llama(), tiny.tokenizer(), bf16)
    assert model.matmul_dtype is torch.bfloat16
    bank = Bank(model, tiny.task_data(model), tiny.settings(compact=compact), tiny.MODEL, 1)
    bank.admit(0, 0, tiny.trial(), None)
    (evaluation,) = bank.evaluate([0])
    first, second = (bank.train_step()[0] for _ in range(2))
    assert (evaluation.kl_seq, first.kl_token) == (0.0, 0.0)
    assert second.kl_token > 0


@pytest.mark.parametrize("lengths", [(12, 12, 9), (9, 9, 12), (12, 9, 12), (9, 12, 9)])
def test_more_hidden_states_than_targets_are_an_error_that_names_both(
    lengths: tuple[int, int, int],
) -> None:
    # field case A45: torch's gather would quietly read the first 9 of 12 rows
    policy, reference, targets = lengths
    head = Head(torch.eye(7, 4), None)
    rule = HeadRule(1.0, None, frozenset(), None)
    told = f"got {policy} of the policy, {reference} of the reference, {targets} targets"
    with pytest.raises(ValueError, match=told):
        token_columns(
            torch.ones(policy, 4), torch.ones(reference, 4), torch.zeros(targets).long(),
            head, head, rule,
        )  # fmt: skip


def test_updates_counts_what_was_applied() -> None:
    # field case A53
    bank = tiny.bank(1, epochs=3, minibatches=2)
    bank.admit(0, 0, tiny.trial(), None)
    assert bank.train_step()[0].values["train/updates"] == 6
    assert bank.parts.optimizer.num_steps_K == [6]


def test_a_step_that_is_cut_between_micro_batches_applies_and_leaves_nothing() -> None:
    # field case A55: in the second of four
    cut, whole = (tiny.bank(1, micro_batch=2) for _ in range(2))
    for bank in (cut, whole):
        bank.admit(0, 0, tiny.trial(), None)
        push(bank, 0)
    passes = 0

    def interrupt(_module: object, _args: object) -> None:
        nonlocal passes
        passes += torch.is_grad_enabled()
        if passes == 2:
            raise KeyboardInterrupt

    handle = cut.parts.loaded.body.register_forward_pre_hook(interrupt)
    before = cut.parts.stack.flat_KP.clone()
    with pytest.raises(KeyboardInterrupt):
        cut.train_step()
    handle.remove()
    assert cut.parts.stack.grad_KP.any(), "the first micro-batch has left a gradient behind"
    assert torch.equal(cut.parts.stack.flat_KP, before)
    assert cut.parts.optimizer.num_steps_K == [0]
    (again,), (undisturbed,) = cut.train_step(), whole.train_step()
    assert again.step == undisturbed.step == 1
    assert torch.equal(cut.parts.stack.grad_KP, whole.parts.stack.grad_KP)
    assert torch.equal(cut.parts.stack.flat_KP, whole.parts.stack.flat_KP)
