"""All probes together, on the built-in task and on tiny ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import pytest
import soundness_bank as case
import tiny
import torch

from kltune.errors import SpecError
from kltune.launch.assemble import build_bank, find_inputs, load_ground
from kltune.metrics.record import RewardScale
from kltune.spec.load import load_spec
from kltune.tasks.protocol import Sample
from kltune.trainer.soundness.look import look, look_cheaply

KITCHEN = Path(__file__).parents[3] / "sweeps" / "kitchen.yaml"
UNIT = RewardScale(sigma=1.0, std=1.0, mean=0.0, num_groups=1, mean_tokens=1.0)


def test_the_built_in_task_is_sound_and_looked_at_in_seconds() -> None:
    loaded = load_spec(KITCHEN)
    spec = loaded.spec
    ground = load_ground(spec, find_inputs(loaded), None)
    bank = build_bank(ground, spec, UNIT, 1)
    told: list[str] = []
    began = perf_counter()
    found = look(bank, spec, slots=4, say=told.append)
    assert perf_counter() - began < 15
    assert len(told) == 3
    assert bank.free_slots() == (0,)
    assert found.reference.exact_kl_token == 0
    assert found.padding.worst < 1e-4
    assert found.oracle.cause == "none"
    assert found.fixed_point.weights_kept_at_zero
    assert found.fixed_point.weights_moved
    assert found.fixed_point.reference_kept
    assert found.sampler.moved_gap is not None
    assert max(found.sampler.start_gap, found.sampler.moved_gap) < 1e-4
    assert (found.dropout.policy_gap, found.dropout.num_active) == (0, 0)
    assert found.dropout.scores_repeat
    assert found.masks.by_hand == found.masks.by_mask == found.masks.scored
    assert found.masks.step_by_hand == found.masks.step_metric
    assert found.memory.slots == 4
    assert found.scoring.proxy.fault is None
    assert found.tokens.answer_entropy_token < 0.7 * found.tokens.relabelled_entropy_token
    assert found.tokens.reward_ids_agree
    assert found.stops.missing_stop_ids == ()
    cheap = look_cheaply(bank, spec)
    assert cheap.tokens == found.tokens
    assert cheap.reference == found.reference


def test_looking_leaves_no_trace_in_a_trial() -> None:
    looked, untouched = (case.bank_of(tiny.loaded(own_forward=True)) for _ in range(2))
    look(looked, case.study())
    look_cheaply(looked, case.study())
    results = []
    for bank in (looked, untouched):
        bank.admit(0, 3, tiny.trial(seed=2), None)
        results.append([dict(bank.train_step()[0].values) for _ in range(2)])
    for one, other in zip(*results, strict=True):
        assert {k: v for k, v in one.items() if not k.startswith("time/")} == {
            k: v for k, v in other.items() if not k.startswith("time/")
        }
    assert torch.equal(looked.parts.stack.flat_KP, untouched.parts.stack.flat_KP)


def test_a_proxy_that_fails_does_not_hide_the_rest() -> None:
    class Broken:
        name = "broken"

        def __call__(self, samples: Sequence[Sample]) -> list[float]:
            raise RuntimeError("no judge")

    bank = case.bank_of(tiny.loaded(own_forward=True))
    data = replace(bank.parts.data, proxy=Broken())
    bank.parts = replace(bank.parts, data=data)
    found = look(bank, case.study())
    assert found.scoring.proxy.fault is not None
    assert "no judge" in found.scoring.proxy.fault
    assert found.fixed_point.weights_moved
    assert bank.parts.data.proxy is data.proxy
    assert bank.free_slots() == (0,)


def test_more_samples_are_drawn_if_asked() -> None:
    bank = case.bank_of(tiny.loaded(own_forward=True))
    assert look_cheaply(bank, case.study(), samples=12).scoring.proxy.num_samples == 12
    assert look_cheaply(bank, case.study()).scoring.proxy.num_samples == 32


def test_prompts_that_the_model_cannot_read_are_refused_by_name() -> None:
    bank = case.bank_of(tiny.loaded())
    ids = ((4, 30), *bank.parts.data.train.ids[1:])
    data = replace(bank.parts.data, train=replace(bank.parts.data.train, ids=ids))
    bank.parts = replace(bank.parts, data=data)
    with pytest.raises(SpecError, match="id 30 for prompt 'p0', but the model reads 30 ids"):
        look_cheaply(bank, case.study())
    assert bank.free_slots() == (0,)
