"""What a scorer does wrong costs its own trial, with a message that says what."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
import tiny
import torch

from kltune.errors import ServiceError, SpecError, TrialFault
from kltune.tasks.calls_weighted import Part, WeightedScorer
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import CallLimits, function_scorer
from kltune.trainer.score import score_batch, score_samples

SAMPLES = [Sample(Prompt(f"p{i}", "w1"), f"w{i}", (i, 1), ended=True) for i in range(3)]


@dataclass
class Scripted:
    """A scorer that does what it is told."""

    body: Callable[[Sequence[Sample]], Sequence[float]]
    name: str = "mine"
    calls: list[int] = field(default_factory=list[int])

    def __call__(self, samples: Sequence[Sample]) -> Sequence[float]:
        self.calls.append(len(samples))
        return self.body(samples)


def test_scores_come_back_in_order_as_floats() -> None:
    scorer = Scripted(lambda samples: [int(s.text[1:]) for s in samples])
    scores = score_samples(scorer, SAMPLES, 0)
    assert scores == [0.0, 1.0, 2.0]
    assert all(type(s) is float for s in scores)
    assert scorer.calls == [3], "one call for all samples of a slot"


def raising(_samples: Sequence[Sample]) -> Sequence[float]:
    raise ZeroDivisionError("by zero")


def refusing(_samples: Sequence[Sample]) -> Sequence[float]:
    raise SpecError("the judge has no key")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (raising, "scorer mine raised ZeroDivisionError: by zero"),
        (refusing, "scorer mine: the judge has no key"),
        (lambda _: [1.0, 2.0], "scorer mine returned 2 scores for 3 completions"),
        (lambda _: [1.0, 2.0, 3.0, 4.0], "scorer mine returned 4 scores for 3 completions"),
        (lambda _: [], "scorer mine returned 0 scores for 3 completions"),
        (
            lambda _: [1.0, math.nan, 3.0],
            "scorer mine returned no score (None or NaN) for 'w1' (prompt 'p1')",
        ),
        (lambda _: [1.0, 2.0, -math.inf], "scorer mine returned -inf for 'w2' (prompt 'p2')"),
        (
            lambda _: [1.0, "good", 3.0],
            "scorer mine raised ValueError: could not convert string to float: 'good'",
        ),
    ],
)
def test_a_scorers_fault_names_the_slot_the_scorer_and_what_it_did(
    body: Callable[[Sequence[Sample]], Sequence[float]], message: str
) -> None:
    with pytest.raises(TrialFault) as caught:
        score_samples(Scripted(body), SAMPLES, 5)
    assert caught.value.slots == (5,)
    assert str(caught.value) == message
    assert not caught.value.is_retried


def test_a_proxy_may_leave_completions_unscored_but_not_all_and_never_by_infinity() -> None:
    scores = score_samples(Scripted(lambda _: [1.0, None, math.nan]), SAMPLES, 0, may_skip=True)  # pyright: ignore[reportArgumentType]
    assert scores[0] == 1.0
    assert all(math.isnan(score) for score in scores[1:])
    with pytest.raises(TrialFault, match="scorer mine could score none of 3 completions"):
        score_samples(Scripted(lambda _: [math.nan] * 3), SAMPLES, 0, may_skip=True)
    with pytest.raises(TrialFault, match="scorer mine returned inf for 'w2'"):
        score_samples(Scripted(lambda _: [0.0, 0.0, math.inf]), SAMPLES, 0, may_skip=True)


@pytest.mark.parametrize("wrong", [None, 3.0])
def test_a_scorer_that_returns_no_sequence_costs_its_own_trial(wrong: object) -> None:
    with pytest.raises(TrialFault, match="scorer mine raised TypeError"):
        score_samples(Scripted(lambda _: wrong), SAMPLES, 1)  # pyright: ignore[reportArgumentType]


def test_a_users_interrupt_is_not_a_scorers_fault() -> None:
    def interrupt(_samples: Sequence[Sample]) -> Sequence[float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_samples(Scripted(interrupt), SAMPLES, 0)


def _gradients_off(scores: list[float]) -> list[float]:
    torch.set_grad_enabled(False)
    return scores


def _doubles(scores: list[float]) -> list[float]:
    torch.set_default_dtype(torch.float64)
    return scores


def _threads(scores: list[float]) -> list[float]:
    torch.set_num_threads(torch.get_num_threads() + 1)
    return scores


def _deterministic(scores: list[float]) -> list[float]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    return scores


def _rough_products(scores: list[float]) -> list[float]:
    torch.set_float32_matmul_precision("medium")
    return scores


def state() -> tuple[object, ...]:
    return (
        torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(),
    )  # fmt: skip


CHANGES = [_gradients_off, _doubles, _threads, _deterministic, _rough_products]


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_scorer_changes_of_torch_is_put_back(
    change: Callable[[list[float]], list[float]],
) -> None:
    before = state()
    score_samples(Scripted(lambda samples: change([0.0] * len(samples))), SAMPLES, 0)
    assert state() == before

    def raises(samples: Sequence[Sample]) -> Sequence[float]:
        change([])
        raise ValueError(len(samples))

    with pytest.raises(TrialFault):
        score_samples(Scripted(raises), SAMPLES, 0)
    assert state() == before


def test_training_is_the_same_bit_for_bit_whatever_the_proxy_does_to_torch() -> None:
    def trained(change: Callable[[list[float]], list[float]]) -> torch.Tensor:
        bank = tiny.bank(1)
        count = tiny.CountWord("w3")
        proxy = Scripted(lambda samples: change(count(samples)))
        bank.parts = replace(bank.parts, data=replace(bank.parts.data, proxy=proxy))
        bank.admit(0, 0, tiny.trial(), None)
        for _ in range(2):
            bank.train_step()
        return bank.parts.stack.flat_KP.detach().clone()

    plain = trained(list)
    for change in CHANGES:
        assert torch.equal(trained(change), plain), change.__name__


def test_parts_of_a_sum_and_errors_that_were_passed_over_come_along() -> None:
    def picky(completions: list[str]) -> list[float]:
        if "w1" in completions:
            raise ValueError("no w1")
        return [1.0] * len(completions)

    one = function_scorer("r.py:f", picky, limits=CallLimits(5.0, 0.5))
    found = score_batch(WeightedScorer((Part("p", 2.0, one),)), SAMPLES, 0, may_skip=True)
    assert found.values[::2] == [2.0, 2.0]
    assert list(found.parts) == ["p"]
    assert "no w1" in found.problems[0]
    with pytest.raises(TrialFault, match=r"could score none of 1 completions; prompt 'p1'"):
        score_batch(one, SAMPLES[1:2], 0, may_skip=True)


def test_a_judge_that_is_down_is_no_trials_fault() -> None:
    def down(completions: list[str]) -> list[float]:
        raise ServiceError("task.gold: the judge is down")

    with pytest.raises(ServiceError, match=r"^task\.gold: the judge is down$"):
        score_batch(function_scorer("r.py:f", down), SAMPLES, 0, may_skip=True)
