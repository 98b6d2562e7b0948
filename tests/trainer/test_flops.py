"""Operations counted by hand, and against what torch counts in a real forward and backward."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tiny
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from kltune.spec.trainer import TrainerSpec
from kltune.trainer.flops import (
    ModelSize,
    Passes,
    StepTokens,
    backward_flops,
    evaluation_flops,
    forward_flops,
    step_flops,
)
from kltune.trainer.lora import attach
from kltune.trainer.model import LoadedModel

SIZE = ModelSize(body=1000, head=200, layers=2, width=10)
TOKENS = StepTokens(read=30, predicted=12, pairs=50)
ADAPTERS = 16
ATTENTION = 4 * 2 * 10 * 50
FORWARD = 2 * 1016 * 30 + 2 * 200 * 12 + ATTENTION
BASE_FORWARD = 2 * 1000 * 30 + 2 * 200 * 12 + ATTENTION
BACKWARD = (2 * 1000 + 4 * 16) * 30 + 2 * 200 * 12 + 2 * ATTENTION


def test_a_size_is_the_weights_of_the_linear_layers() -> None:
    assert ModelSize.of_shapes([(10, 40), (40, 15)], (10, 20), 2, 10) == SIZE


def test_a_prompt_is_read_once_and_the_last_token_of_a_completion_never() -> None:
    found = StepTokens.of([3, 2], [4, 1, 2, 2], group_size=2)
    assert found.read == 5 + (3 + 0 + 1 + 1)
    assert found.predicted == 9
    # Prompts 1+2+3 and 1+2; the first completion's three read tokens see 4, 5 and 6 positions.
    assert found.pairs == 6 + 3 + (4 + 5 + 6) + 0 + 3 + 3


def test_masks_give_the_same_tokens_as_lengths_and_pieces_add_up() -> None:
    prompt_NL = torch.tensor([[0, 1, 1, 1]] * 2 + [[0, 0, 1, 1]] * 2)
    completion_NT = torch.arange(4) < torch.tensor([[4], [1], [2], [2]])
    whole = StepTokens.of([3, 2], [4, 1, 2, 2], group_size=2)
    assert StepTokens.of_masks(prompt_NL, completion_NT, group_size=2) == whole
    first = StepTokens.of_masks(prompt_NL[:2], completion_NT[:2], group_size=2)
    assert first + StepTokens.of_masks(prompt_NL[2:], completion_NT[2:], group_size=2) == whole


def test_a_width_is_that_of_the_heads_where_the_config_says() -> None:
    config = SimpleNamespace(
        num_hidden_layers=3, num_attention_heads=4, hidden_size=20, head_dim=None
    )
    body, head = torch.nn.Sequential(torch.nn.Linear(20, 8)), torch.nn.Linear(20, 5)
    assert ModelSize.of(body, head, config) == ModelSize(160, 100, 3, 20)
    config.head_dim = 8
    assert ModelSize.of(body, head, config).width == 32


def test_completions_that_do_not_fit_their_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="3 completions are not 2 to each of 2 prompts"):
        StepTokens.of([3, 2], [4, 1, 2], group_size=2)


def test_a_step_on_policy_is_a_rollout_a_reference_and_one_forward_and_backward() -> None:
    found = step_flops(SIZE, ADAPTERS, TOKENS, Passes())
    assert found.rollout == FORWARD
    assert found.reference == BASE_FORWARD
    assert found.update == FORWARD + BACKWARD
    assert found.total == 2 * FORWARD + BASE_FORWARD + BACKWARD


def test_backward_is_once_the_forward_through_frozen_and_twice_through_trained_weights() -> None:
    linear = 2 * 1000 * 30 + 2 * 200 * 12
    frozen = backward_flops(SIZE, TOKENS, 0, is_full=False)
    trained = backward_flops(SIZE, TOKENS, 0, is_full=True)
    assert (frozen, trained) == (linear + 2 * ATTENTION, 2 * linear + 2 * ATTENTION)


def test_further_passes_need_old_log_probs_first() -> None:
    found = step_flops(SIZE, ADAPTERS, TOKENS, Passes(epochs=3, is_on_policy=False))
    assert found.update == FORWARD + 3 * (FORWARD + BACKWARD)


def test_a_critic_goes_over_the_tokens_without_a_head() -> None:
    with_one = step_flops(SIZE, ADAPTERS, TOKENS, Passes(has_critic=True))
    head = 2 * 200 * 12
    extra = with_one.update - step_flops(SIZE, ADAPTERS, TOKENS, Passes()).update
    assert extra == FORWARD - head + BACKWARD - head


def test_a_moving_reference_is_one_more_forward() -> None:
    found = step_flops(SIZE, ADAPTERS, TOKENS, Passes(has_moving_reference=True))
    assert found.reference == BASE_FORWARD + FORWARD


def test_an_evaluation_is_a_rollout_and_a_forward_of_policy_and_start() -> None:
    assert evaluation_flops(SIZE, ADAPTERS, TOKENS) == 2 * FORWARD + BASE_FORWARD


def test_the_passes_are_those_of_the_spec() -> None:
    assert Passes.of(TrainerSpec(steps=1), is_full=False) == Passes()
    ppo = TrainerSpec.model_validate({"steps": 1, "algorithm": "ppo", "reference": {"every": 5}})
    found = Passes.of(ppo, is_full=True)
    assert (found.has_critic, found.has_moving_reference, found.is_full) == (True, True, True)
    twice = TrainerSpec(steps=1, minibatches=2)
    assert not Passes.of(twice, is_full=False).is_on_policy


def real() -> tuple[ModelSize, LoadedModel, StepTokens, torch.Tensor]:
    """A tiny model, and 3 rows of 11 ids; torch counts attention over all pairs, masked ones too."""
    loaded = tiny.loaded()
    size = ModelSize.of(loaded.body, loaded.head, loaded.model.config)
    return size, loaded, StepTokens(33, 33, 3 * 11**2), torch.zeros(3, 11, dtype=torch.long)


def run(loaded: LoadedModel, ids: torch.Tensor) -> torch.Tensor:
    positions = torch.arange(ids.shape[1]).expand(ids.shape[0], -1)
    return loaded.logits(loaded.hidden(ids, torch.ones_like(ids), positions), 1.0)


def test_a_forward_is_what_torch_counts_in_a_real_model() -> None:
    size, loaded, tokens, ids = real()
    with sdpa_kernel(SDPBackend.MATH), torch.no_grad(), FlopCounterMode(display=False) as counter:
        run(loaded, ids)
    ours = forward_flops(size, tokens.read, tokens.predicted, tokens.pairs)
    assert counter.get_total_flops() == ours


def test_a_backward_through_trained_weights_is_what_torch_counts() -> None:
    size, loaded, tokens, ids = real()
    loaded.model.requires_grad_(True)
    with sdpa_kernel(SDPBackend.MATH):
        loss = run(loaded, ids).sum()
        with FlopCounterMode(display=False) as counter:
            loss.backward()
    assert counter.get_total_flops() == backward_flops(size, tokens, 0, is_full=True)


def test_adapters_add_what_torch_counts_and_a_frozen_base_halves_its_backward() -> None:
    size, loaded, tokens, ids = real()
    stack = attach(loaded.body, 1, 4, 8)
    stack.reset(0, 0)
    wrapped = ModelSize.of(loaded.body, loaded.head, loaded.model.config)
    assert wrapped == size, "adapters are counted apart"
    view = stack.view([0])
    with sdpa_kernel(SDPBackend.MATH), stack.use(view):
        with FlopCounterMode(display=False) as forward:
            loss = run(loaded, ids).sum()
        with FlopCounterMode(display=False) as backward:
            view.add_gradients(loss)
    adapters = stack.num_parameters
    ours = forward_flops(size, tokens.read, tokens.predicted, tokens.pairs, adapters)
    assert forward.get_total_flops() == ours
    # The first layer's queries, keys and values have no gradient to hand on to the embedding.
    counted = backward_flops(size, tokens, adapters, is_full=False)
    assert 0.9 * counted < backward.get_total_flops() <= counted
