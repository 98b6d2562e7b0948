"""K trials packed against each alone, and a slot against whatever its neighbours do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
import tiny
import torch
from oracle import Recorder, push, recorded_bank, relative_error

from kltune.metrics.record import EvalMetrics, StepMetrics
from kltune.spec.trial import TrialSpec
from kltune.tasks.protocol import Sample
from kltune.trainer import logprobs
from kltune.trainer.bank import Bank
from kltune.trainer.lora import StackedLoRALinear

pytestmark = pytest.mark.parity

WATCHED = {
    "seed": 3,
    "penalty": "k3-loss",
    "controller": "proportional",
    "target_kl": 0.05,
    "horizon": 40,
}
SPECS: tuple[TrialSpec, ...] = (
    tiny.trial(seed=3, beta=0.3, penalty="k1-reward", learning_rate=1e-2),
    tiny.trial(seed=4, beta=0.0, penalty=None, learning_rate=3e-3),
    tiny.trial(**{**WATCHED, "seed": 5, "learning_rate": 2e-2}),
    tiny.trial(seed=3, beta=0.05, penalty="k2-loss", learning_rate=5e-3),
)


def numbers(metrics: StepMetrics | EvalMetrics) -> dict[str, str]:
    """Every number but the clock's, to the last bit (hex also tells 0.0 from -0.0)."""
    return {n: float(v).hex() for n, v in metrics.values.items() if not n.startswith("time/")}


def packed(
    specs: list[TrialSpec], *, compact: bool, poisoned: int | None = None, **trainer: object
) -> Bank:
    """One slot for each spec, off the reference by the slot's own start; NaN in the adapter of ``poisoned``."""
    bank = tiny.bank(len(specs), compact=compact, **trainer)
    for slot, spec in enumerate(specs):
        bank.admit(slot, slot, spec, None)
        push(bank, slot, seed=spec.seed)
    if poisoned is not None:
        bank.parts.stack.flat_KP[poisoned] = torch.nan
    return bank


def state(bank: Bank, slot: int) -> list[torch.Tensor]:
    parts = bank.parts
    rows = (
        parts.stack.grad_KP,
        parts.stack.flat_KP,
        parts.optimizer.exp_avg_KP,
        parts.optimizer.exp_avg_sq_KP,
    )
    return [tensor[slot].clone() for tensor in rows]


@pytest.mark.parametrize(
    ("own_forward", "micro_batch"), [(False, None), (False, 2), (True, None), (True, 2)]
)
@pytest.mark.parametrize("watched", [0, 1, 2])
def test_with_fixed_shapes_neighbours_change_not_one_bit(
    watched: int, micro_batch: int | None, own_forward: bool
) -> None:
    spec = tiny.trial(**WATCHED)
    quiet, loud = [tiny.trial(seed=1), tiny.trial(seed=2)], [
        tiny.trial(seed=8, beta=0.0, penalty=None, learning_rate=0.5),
        tiny.trial(seed=9, beta=2.0, penalty="k1-reward", learning_rate=0.3),
    ]  # fmt: skip
    banks = []
    for neighbours, poisoned in ((quiet, None), (loud, (watched + 1) % 3)):
        specs = [*neighbours[:watched], spec, *neighbours[watched:]]
        kept = {"micro_batch": micro_batch, "own_forward": own_forward}
        banks.append(packed(specs, compact=False, poisoned=poisoned, **kept))
    one, other = banks
    for _ in range(3):
        expected, got = one.train_step()[watched], other.train_step()[watched]
        assert expected.values["train/grad_norm"] > 0
        assert numbers(got) == numbers(expected)
        for a, b in zip(state(one, watched), state(other, watched), strict=True):
            assert torch.equal(a, b)
    slots = [0, 1, 2]
    expected_eval, got_eval = one.evaluate(slots)[watched], other.evaluate(slots)[watched]
    assert numbers(got_eval) == numbers(expected_eval)
    assert got_eval.samples == expected_eval.samples


def test_with_compaction_a_broken_neighbour_leaves_the_others_finite_and_within_1e_5() -> None:
    specs = list(SPECS[:3])
    clean, broken = packed(specs, compact=True), packed(specs, compact=True, poisoned=1)
    for _ in range(3):
        expected, got = clean.train_step(), broken.train_step()
        assert not got[1].is_finite
        for slot in (0, 2):
            assert got[slot].is_finite
            assert got[slot].tokens == expected[slot].tokens
            assert got[slot].kl_token == pytest.approx(expected[slot].kl_token, rel=1e-5, abs=1e-6)
            grads = (bank.parts.stack.grad_KP[slot] for bank in (broken, clean))
            assert relative_error(*grads) < 1e-5
            # what rounding did to one step must not add up in the comparison of the next
            for ours, theirs in zip(rows(broken, slot), rows(clean, slot), strict=True):
                ours.copy_(theirs)


def rows(bank: Bank, slot: int) -> list[torch.Tensor]:
    parts = bank.parts
    return [
        parts.stack.flat_KP[slot],
        parts.optimizer.exp_avg_KP[slot],
        parts.optimizer.exp_avg_sq_KP[slot],
    ]


@pytest.mark.parametrize("compact", [True, False])
def test_packed_and_alone_have_the_same_tokens_and_gradients_from_the_same_state(
    compact: bool,
) -> None:
    together, together_proxy, _ = recorded_bank(4, compact=compact)
    solo = [recorded_bank(1, compact=compact)[:2] for _ in SPECS]
    for slot, spec in enumerate(SPECS):
        for bank, place in ((together, slot), (solo[slot][0], 0)):
            bank.admit(place, slot, spec, None)
            push(bank, place, seed=slot)
    for step in range(3):
        got = together.train_step()
        for slot, (alone, proxy) in enumerate(solo):
            (expected,) = alone.train_step()
            assert together_proxy.calls[4 * step + slot] == proxy.calls[step], (step, slot)
            assert expected.values["train/grad_norm"] > 0
            assert (
                relative_error(together.parts.stack.grad_KP[slot], alone.parts.stack.grad_KP[0])
                < 1e-5
            )
            assert got[slot].beta == pytest.approx(expected.beta, rel=1e-5)
            assert got[slot].kl_token == pytest.approx(expected.kl_token, rel=1e-5)
            for ours, theirs in zip(rows(alone, 0), rows(together, slot), strict=True):
                ours.copy_(theirs)


def test_packed_and_alone_sample_the_same_tokens_in_the_first_steps() -> None:
    together, together_proxy, _ = recorded_bank(4)
    for slot, spec in enumerate(SPECS):
        together.admit(slot, slot, spec, None)
    for _ in range(4):
        together.train_step()
    for slot, spec in enumerate(SPECS):
        alone, proxy, _ = recorded_bank(1)
        alone.admit(0, slot, spec, None)
        for _ in range(4):
            alone.train_step()
        assert together_proxy.calls[slot::4] == proxy.calls


@pytest.mark.parametrize("own_forward", [False, True])
@pytest.mark.parametrize("is_poisoned", [False, True])
def test_a_trial_that_fills_a_freed_slot_is_the_trial_of_a_fresh_bank(
    is_poisoned: bool, own_forward: bool
) -> None:
    spec = tiny.trial(**WATCHED)
    used, fresh = (tiny.bank(2, compact=False, own_forward=own_forward) for _ in range(2))
    for slot in range(2):
        used.admit(slot, slot, tiny.trial(seed=slot, learning_rate=0.1), None)
    for _ in range(3):
        used.train_step()
    if is_poisoned:
        used.parts.stack.flat_KP[1] = torch.nan
        assert not used.train_step()[1].is_finite
        used.evaluate([0, 1])
    used.evict(1)
    fresh.admit(0, 0, tiny.trial(seed=6), None)
    for bank in (used, fresh):
        bank.admit(1, 9, spec, None)
    for _ in range(3):
        got, expected = used.train_step()[1], fresh.train_step()[1]
        assert (got.step, got.trial_number) == (expected.step, 9)
        assert numbers(got) == numbers(expected)
        for a, b in zip(state(used, 1), state(fresh, 1), strict=True):
            assert torch.equal(a, b)
    assert numbers(used.evaluate([1])[0]) == numbers(fresh.evaluate([1])[0])


def test_admitting_a_trial_disturbs_no_running_one() -> None:
    alone, joined = (recorded_bank(2)[0] for _ in range(2))
    for bank in (alone, joined):
        bank.admit(0, 0, SPECS[0], None)
        bank.train_step()
    joined.admit(1, 1, SPECS[1], None)
    for _ in range(2):
        (expected,), got = alone.train_step(), joined.train_step()[0]
        assert got.kl_token == pytest.approx(expected.kl_token, rel=1e-4)
        assert got.tokens == expected.tokens


def base_calls(num_slots: int, what: str) -> int:
    """Matmuls of the frozen base in one step or evaluation of ``num_slots`` trials."""
    bank, _, _ = recorded_bank(num_slots, compact=False, never_ends=True)
    for slot in range(num_slots):
        bank.admit(slot, slot, tiny.trial(seed=slot), None)
    calls = 0

    def count(*_args: object) -> None:
        nonlocal calls
        calls += 1

    for module in bank.parts.loaded.body.modules():
        if isinstance(module, StackedLoRALinear):
            module.base.register_forward_hook(count)
    if what == "train_step":
        bank.train_step()
    else:
        bank.evaluate(list(range(num_slots)))
    return calls


def test_with_fixed_shapes_no_pass_changes_its_shape_whatever_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bank = packed([tiny.trial(seed=k) for k in range(3)], compact=False)
    loaded = bank.parts.loaded
    body: set[tuple[int, ...]] = set()
    head: set[tuple[int, ...]] = set()
    loaded.body.register_forward_pre_hook(
        lambda _m, _a, kwargs: body.add(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    loaded.head.register_forward_pre_hook(lambda _m, args: head.add(tuple(args[0].shape)))
    scored: set[tuple[int, ...]] = set()
    columns = logprobs.token_columns

    def watched(policy_MD: torch.Tensor, *rest: Any) -> Any:
        scored.add(tuple(policy_MD.shape))
        return columns(policy_MD, *rest)

    monkeypatch.setattr(logprobs, "token_columns", watched)
    lengths = {m.tokens for _ in range(3) for m in bank.train_step()}
    assert len(lengths) > 1, "the completions must differ in length"
    slots, prompts, rows, width, tokens = 3, 2, 8, bank.parts.data.train.width, 6
    assert body == {(slots * prompts, width), (slots * rows, 1), (slots * rows, width + tokens - 1)}
    assert head == {(slots * rows, 32)}
    assert scored == {(slots * rows * tokens, 32)}


@pytest.mark.parametrize("what", ["train_step", "evaluate"])
def test_base_matmuls_do_not_grow_with_the_number_of_slots(what: str) -> None:
    linear_layers, prompt, positions, scoring = (
        14,
        1,
        5,
        2,
    )  # 6 tokens: one from the prompt, 5 more positions
    expected = linear_layers * (prompt + positions + scoring)
    assert [base_calls(k, what) for k in (1, 2, 4)] == [expected] * 3


# by our own forward: compacted, and yet not one bit depends on the neighbours

WAYS: dict[str, dict[str, object]] = {
    "grpo": {},
    "grpo in micro-batches": {"micro_batch": 4},
    "mini-batches": {"algorithm": "rloo", "epochs": 2, "minibatches": 3, "entropy_bonus": 0.01},
    "ppo with a moving reference": {
        "algorithm": "ppo",
        "epochs": 2,
        "minibatches": 2,
        "reference": {"every": 1, "mixture": 0.5},
    },
}
OWN_WATCHED = tiny.trial(**WATCHED, beta=0.3, learning_rate=1e-2)


@dataclass
class OwnBank:
    """A bank by our own forward, and what its trials were seen to do."""

    bank: Bank
    proxy: Recorder
    history: dict[int, list[object]] = field(default_factory=dict[int, list[object]])
    """By trial: of each step its numbers, its completions, and all that its slot owns."""

    def admit(self, slot: int, trial: int, spec: TrialSpec) -> None:
        self.bank.admit(slot, trial, spec, None)
        push(self.bank, slot, seed=spec.seed)
        self.history[trial] = []

    def step(self) -> tuple[StepMetrics, ...]:
        self.proxy.calls.clear()
        found = self.bank.train_step()
        for metrics, samples in zip(found, self.proxy.calls, strict=True):
            owned = [tensor.tolist() for tensor in everything(self.bank, metrics.slot)]
            self.history[metrics.trial_number] += [numbers(metrics), texts(samples), owned]
        return found

    def evaluate(self, *slots: int) -> None:
        for metrics in self.bank.evaluate(slots):
            self.history[metrics.trial_number] += [numbers(metrics), metrics.samples]


def own_bank(num_slots: int, **trainer: object) -> OwnBank:
    """Completions end anywhere between 1 and 20 tokens, so that slots and steps differ in width."""
    model = replace(tiny.loaded(own_forward=True), stop_ids=(1, 2, 3, 4))
    proxy = Recorder()
    data = replace(tiny.task_data(model), proxy=proxy)
    given = tiny.settings(**{"prompts": 3, "max_new_tokens": 20, **trainer})
    return OwnBank(Bank(model, data, given, tiny.MODEL, num_slots), proxy)


def texts(samples: list[Sample]) -> list[tuple[str, tuple[int, ...]]]:
    return [(sample.prompt.id, tuple(sample.token_ids)) for sample in samples]


def everything(bank: Bank, slot: int) -> list[torch.Tensor]:
    """Weights, moments and value head of one slot."""
    parts = bank.parts
    found = [parts.stack.flat_KP[row] for row in parts.rows.of(slot)]
    for row in parts.rows.of(slot)[: 2 if parts.critic else 1]:
        found += [parts.optimizer.exp_avg_KP[row], parts.optimizer.exp_avg_sq_KP[row]]
    return found if parts.critic is None else [*found, parts.critic.head_KH[slot]]


@cache
def alone(way: str) -> list[object]:
    """The watched trial's history in a bank of one."""
    single = own_bank(1, **WAYS[way])
    single.admit(0, 7, OWN_WATCHED)
    for _ in range(3):
        (metrics,) = single.step()
        assert metrics.is_finite
        assert metrics.values["train/grad_norm"] > 0
    single.evaluate(0)
    return single.history[7]


def longest(metrics: tuple[StepMetrics, ...]) -> list[float]:
    return [m.values["tokens/completion_max"] for m in metrics]


@pytest.mark.parametrize(
    ("num_slots", "slot", "kind"),
    [(2, 0, "quiet"), (2, 1, "diverging"), (3, 1, "poisoned"), (4, 3, "diverging")],
)
@pytest.mark.parametrize("way", WAYS)
def test_by_our_own_forward_a_trial_is_to_the_last_bit_what_it_is_alone(
    way: str, num_slots: int, slot: int, kind: str
) -> None:
    together = own_bank(num_slots, **WAYS[way])
    others = [k for k in range(num_slots) if k != slot]
    for k in others:
        spec = tiny.trial(seed=20 + k, penalty="k2-loss", learning_rate=1e-3)
        if kind == "diverging":
            spec = tiny.trial(seed=20 + k, beta=0.0, penalty=None, learning_rate=2.0)
        together.admit(k, k, spec)
    together.admit(slot, 7, OWN_WATCHED)
    if kind == "poisoned":
        together.bank.parts.stack.flat_KP[others[0]] = torch.nan
    widths = []
    for _ in range(3):
        found = together.step()
        widths.append(longest(found))
        assert found[others[0]].is_finite == (kind != "poisoned")
    assert any(max(row) > row[slot] for row in widths), f"no neighbour was longer: {widths}"
    together.evaluate(*range(num_slots))
    assert together.history[7] == alone(way)


@pytest.mark.parametrize("way", WAYS)
def test_by_our_own_forward_neighbours_may_end_and_slots_be_filled_again(way: str) -> None:
    # trial 7 is admitted last, into a slot that was used; its neighbours change at every step
    together = own_bank(3, **WAYS[way])
    for k in range(3):
        together.admit(k, k, tiny.trial(seed=30 + k, learning_rate=0.1))
    together.step()
    together.evaluate(0, 1, 2)
    together.bank.evict(1)
    together.step()
    together.admit(1, 7, OWN_WATCHED)
    together.step()
    together.bank.evict(0)
    together.step()
    together.bank.evict(2)
    together.admit(0, 8, tiny.trial(seed=40, learning_rate=0.1))
    together.admit(2, 9, tiny.trial(seed=41, learning_rate=0.1))
    together.step()
    together.evaluate(1, 2)
    assert together.history[7] == alone(way)
    together.evaluate(0)
