"""The search for a size that fits: divisors, clean re-runs, and what is no lack of memory."""

from __future__ import annotations

import pytest
import tiny
import torch

from kltune.errors import OutOfMemoryFault
from kltune.trainer.bank import Bank
from kltune.trainer.micro_batch import MicroBatch, next_divisor, within_memory

NO_MEMORY = "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"


def fitting(limit: int, tried: list[int]) -> object:
    def body(size: int) -> int:
        tried.append(size)
        if size > limit:
            raise RuntimeError(NO_MEMORY)
        return size

    return body


def test_the_next_size_is_the_largest_smaller_divisor() -> None:
    assert [next_divisor(12, s) for s in (12, 6, 4, 3, 2, 1)] == [6, 4, 3, 2, 1, 0]
    assert next_divisor(7, 7) == 1
    assert next_divisor(12, 5) == 4


def test_a_size_that_fits_is_called_once() -> None:
    tried: list[int] = []
    assert MicroBatch(12).run(fitting(12, tried)) == 12
    assert tried == [12]


def test_the_search_ends_at_the_divisor_that_fits_and_remembers_it() -> None:
    tried: list[int] = []
    micro = MicroBatch(12)
    assert micro.run(fitting(3, tried)) == 3
    assert tried == [12, 6, 4, 3]
    assert micro.size == 3
    micro.run(fitting(3, tried))
    assert tried[4:] == [3]


def test_the_search_starts_at_the_size_of_the_spec() -> None:
    tried: list[int] = []
    assert MicroBatch(12, 4).run(fitting(2, tried)) == 2
    assert tried == [4, 3, 2]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shape mismatch"),
        ValueError(NO_MEMORY),
        RuntimeError(NO_MEMORY, "two arguments"),
    ],
)
@pytest.mark.parametrize("failing_size", [12, 6])
def test_any_other_error_flies(error: Exception, failing_size: int) -> None:
    tried: list[int] = []

    def body(size: int) -> None:
        tried.append(size)
        raise error if size == failing_size else RuntimeError(NO_MEMORY)

    with pytest.raises(type(error)) as caught:
        MicroBatch(12).run(body)
    assert caught.value is error
    assert tried[-1] == failing_size


def test_nothing_fits_is_the_fault_of_the_slot_named() -> None:
    tried: list[int] = []
    micro = MicroBatch(4)
    with pytest.raises(OutOfMemoryFault, match="out of memory, even with the smallest") as caught:
        within_memory(lambda: micro.run(fitting(0, tried)), 3)
    assert tried == [4, 2, 1]
    assert caught.value.slots == (3,)
    assert caught.value.is_retried
    assert micro.run(fitting(1, tried)) == 1, (
        "with one trial less it goes on with the smallest size"
    )


def test_the_fault_does_not_keep_what_did_not_fit_alive() -> None:
    with pytest.raises(OutOfMemoryFault) as caught:
        within_memory(lambda: MicroBatch(1).run(fitting(0, [])), 0)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_an_error_that_is_no_lack_of_memory_is_not_made_one() -> None:
    def body() -> None:
        raise RuntimeError("shape mismatch")

    with pytest.raises(RuntimeError, match="shape mismatch"):
        within_memory(body, 0)


def trained(micro_batch: int | None = None) -> Bank:
    """Two trials that have left the reference."""
    bank = tiny.bank(2, micro_batch=micro_batch)
    bank.admit(0, 0, tiny.trial(penalty="k2-loss", seed=0), None)
    bank.admit(1, 1, tiny.trial(penalty="k1-reward", seed=1), None)
    drawn = torch.randn(bank.parts.stack.flat_KP.shape, generator=torch.Generator().manual_seed(0))
    bank.parts.stack.flat_KP.add_(0.05 * drawn)
    return bank


def out_of_memory_above(bank: Bank, rows: int) -> list[int]:
    """Make the base run out of memory in its second pass that records a gradient for more than ``rows`` rows.

    In the second: by then the first micro-batch has left a gradient behind.
    """
    seen: list[int] = []

    def hook(_module: object, _args: object, kwargs: dict[str, torch.Tensor]) -> None:
        count = kwargs["input_ids"].shape[0] // 2
        if torch.is_grad_enabled() and bank.parts.stack.active is not None:
            seen.append(count)
            if count > rows and seen[-2:] in ([count, count], [8]):
                raise RuntimeError(NO_MEMORY)

    bank.parts.loaded.body.register_forward_pre_hook(hook, with_kwargs=True)
    return seen


def test_a_step_that_runs_out_of_memory_ends_with_the_gradients_of_one_that_does_not() -> None:
    whole, short = trained(), trained()
    seen = out_of_memory_above(short, 2)
    expected, got = whole.train_step(), short.train_step()
    assert seen == [8, 4, 4, 2, 2, 2, 2]
    assert short.parts.micro_batch.size == 2
    torch.testing.assert_close(
        short.parts.stack.grad_KP, whole.parts.stack.grad_KP, rtol=1e-5, atol=1e-6
    )
    for one, other in zip(expected, got, strict=True):
        assert other.values["train/loss"] == pytest.approx(one.values["train/loss"], abs=1e-6)
        assert other.kl_token == pytest.approx(one.kl_token, rel=1e-5)


def test_a_step_that_never_fits_is_the_highest_slots_fault_and_changes_nothing() -> None:
    bank = trained(micro_batch=1)

    def hook(_module: object, _args: object) -> None:
        if torch.is_grad_enabled():
            raise RuntimeError(NO_MEMORY)

    handle = bank.parts.loaded.body.register_forward_pre_hook(hook)
    before = bank.parts.stack.flat_KP.clone()
    with pytest.raises(OutOfMemoryFault) as caught:
        bank.train_step()
    assert caught.value.slots == (1,)
    assert torch.equal(bank.parts.stack.flat_KP, before)
    assert bank.parts.optimizer.num_steps_K == [0, 0]
    handle.remove()
    bank.evict(1)
    (metrics,) = bank.train_step()
    assert (metrics.slot, metrics.step, metrics.is_finite) == (0, 1, True)


@pytest.mark.parametrize("what", ["train_step", "evaluate"])
def test_a_rollout_that_does_not_fit_is_the_highest_slots_fault(what: str) -> None:
    bank = trained()

    def hook(_module: object, _args: object) -> None:
        raise RuntimeError(NO_MEMORY)

    handle = bank.parts.loaded.head.register_forward_pre_hook(hook)
    with pytest.raises(OutOfMemoryFault) as caught:
        bank.train_step() if what == "train_step" else bank.evaluate([0, 1])
    assert caught.value.slots == (1,)
    handle.remove()
    assert [m.step for m in bank.train_step()] == [1, 1]


def test_where_not_even_one_row_fits_relief_is_asked_and_the_search_starts_over() -> None:
    calls: list[tuple[int, bool]] = []
    relieved = False

    def relief() -> bool:
        nonlocal relieved
        first, relieved = not relieved, True
        return first

    def body(size: int) -> int:
        calls.append((size, relieved))
        if not relieved or size > 2:
            raise RuntimeError(NO_MEMORY)
        return size

    micro = MicroBatch(4, None, relief)
    assert micro.run(body) == 2
    assert calls == [(4, False), (2, False), (1, False), (4, True), (2, True)]
    assert micro.size == 2


def test_relief_that_has_nothing_left_ends_the_search() -> None:
    def body(size: int) -> int:
        raise RuntimeError(NO_MEMORY)

    with pytest.raises(RuntimeError, match="No executable batch size"):
        MicroBatch(4, None, lambda: False).run(body)


def test_gradients_by_recomputing_are_those_by_keeping() -> None:
    kept, again = (tiny.bank(1, own_forward=True) for _ in range(2))
    for bank in (kept, again):
        bank.admit(0, 0, tiny.trial(), None)
    assert again.parts.loaded.fused is not None
    assert again.parts.loaded.fused.save_memory()
    assert not again.parts.loaded.fused.save_memory(), "there is nothing more to save"
    for _ in range(2):
        expected, got = kept.train_step()[0], again.train_step()[0]
        assert got.kl_token == expected.kl_token
    assert torch.equal(kept.parts.stack.flat_KP, again.parts.stack.flat_KP)
