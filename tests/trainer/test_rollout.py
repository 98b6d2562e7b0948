"""The decode loop against plain forwards of the model, and the inverse CDF against enumeration."""

from __future__ import annotations

from dataclasses import replace

import families
import pytest
import tiny
import torch
from accelerate import Accelerator
from torch import Tensor

from kltune.trainer.encode import PaddedPrompts, pad_left
from kltune.trainer.keyed import Purpose, uniforms
from kltune.trainer.lora import attach
from kltune.trainer.model import LoadedModel, freeze, with_own_forward
from kltune.trainer.rollout import Rollout, Sampling, rollout, sample

CPU = torch.device("cpu")
SHORT, LONG = [5, 9], [4, 8, 15, 16, 23, 7, 3, 11, 20]


def sampling(
    group_size: int = 1, length: int = 12, *, compact: bool = True, temperature: float = 1.0
) -> Sampling:
    return Sampling(group_size, length, temperature, compact)


def draws(rows: int, length: int = 12, slots: int = 1, seed: int = 0) -> Tensor:
    return torch.stack(
        [
            torch.from_numpy(uniforms(seed + k, Purpose.ROLLOUT, 0, rows, length))
            for k in range(slots)
        ]
    )


MODELS = {
    "llama": tiny.loaded,
    "llama by our own forward": lambda: tiny.loaded(own_forward=True),
    "opt": families.opt,
    "mistral": families.mistral,
    "qwen3 by our own forward": lambda: with_own_forward(families.qwen3()),
}


@pytest.fixture(params=sorted(MODELS))
def model(request: pytest.FixtureRequest) -> LoadedModel:
    return MODELS[request.param]()


def plain_logprobs(
    model: LoadedModel, prompt: list[int], completion: list[int], temperature: float = 1.0
) -> Tensor:
    """Of one text, unpadded, by the model's own forward."""
    with torch.no_grad():
        logits = model.model(input_ids=torch.tensor([prompt + completion])).logits[0]
    logprobs = torch.log_softmax(logits / temperature, dim=-1)[len(prompt) - 1 : -1]
    return logprobs.gather(1, torch.tensor(completion)[:, None])[:, 0]


def valid(drawn: Rollout, row: int, slot: int = 0) -> list[int]:
    return drawn.ids_KNT[slot, row][drawn.mask_KNT[slot, row]].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampler_logprobs_are_those_of_a_plain_forward(
    model: LoadedModel, temperature: float
) -> None:
    prompts = pad_left([SHORT, LONG], 0, CPU)
    drawn = rollout(model, prompts, draws(6), sampling(3, temperature=temperature))
    for row in range(6):
        ids = valid(drawn, row)
        expected = plain_logprobs(model, SHORT if row < 3 else LONG, ids, temperature)
        got = drawn.sampler_logprobs_KNT[0, row, : len(ids)]
        torch.testing.assert_close(got, expected, rtol=0, atol=2e-5)
    assert not drawn.sampler_logprobs_KNT[~drawn.mask_KNT].any()


def test_tokens_are_those_of_token_by_token_sampling_from_plain_forwards(
    model: LoadedModel,
) -> None:
    prompts = pad_left([SHORT, LONG], 0, CPU)
    u = draws(4)
    drawn = rollout(model, prompts, u, sampling(2))
    for row in range(4):
        prompt, ids = (SHORT if row < 2 else LONG), []
        while len(ids) < 12 and (not ids or ids[-1] != 1):
            with torch.no_grad():
                logits = model.model(input_ids=torch.tensor([prompt + ids])).logits[0, -1]
            cumulative = logits.double().softmax(-1).cumsum(-1)
            ids.append(int((cumulative <= float(u[0, row, len(ids)])).sum()))
        assert valid(drawn, row) == ids


def test_a_prompt_gives_the_same_completion_alone_and_padded_among_longer_ones(
    model: LoadedModel,
) -> None:
    u = draws(2)
    among = rollout(model, pad_left([SHORT, LONG], 0, CPU), u, sampling())
    alone = rollout(model, pad_left([SHORT], 0, CPU), u[:, :1], sampling())
    wide = rollout(model, pad_left([SHORT], 0, CPU, width=25), u[:, :1], sampling())
    count = len(valid(alone, 0))
    for other in (among, wide):
        assert valid(other, 0) == valid(alone, 0)
        difference = (
            other.sampler_logprobs_KNT[0, 0, :count] - alone.sampler_logprobs_KNT[0, 0, :count]
        )
        assert float(difference.abs().max()) <= 1e-4


def test_greedy_completions_do_not_depend_on_padding(model: LoadedModel) -> None:
    # at a tiny temperature any u picks the most likely token
    cold = sampling(temperature=1e-3)
    two, seven = [5, 9], [4, 8, 15, 16, 23, 7, 3]
    together = rollout(model, pad_left([two, seven], 0, CPU), draws(2), cold)
    for row, prompt in enumerate((two, seven)):
        ids: list[int] = []
        while len(ids) < 12 and (not ids or ids[-1] != 1):
            with torch.no_grad():
                ids.append(
                    int(model.model(input_ids=torch.tensor([prompt + ids])).logits[0, -1].argmax())
                )
        assert valid(together, row) == ids


def scripted(stop_ids: tuple[int, ...] = (1,)) -> LoadedModel:
    """Llama whose head is silenced: logits are 0, so u picks the token: floor(30 u)."""
    model = tiny.llama()
    with torch.no_grad():
        model.lm_head.weight.zero_()
    return replace(freeze(model, tiny.tokenizer(), Accelerator(cpu=True)), stop_ids=stop_ids)


def u_for(rows: list[list[int]]) -> Tensor:
    return (torch.tensor([rows], dtype=torch.float32) + 0.5) / 30


def prompts(count: int) -> PaddedPrompts:
    return pad_left([SHORT] * count, 0, CPU)


@pytest.mark.parametrize("compact", [True, False])
def test_the_first_stop_token_is_valid_and_what_follows_is_not(compact: bool) -> None:
    u = u_for([[4, 1, 1, 5], [4, 5, 6, 7], [1, 1, 4, 4]])
    drawn = rollout(scripted(), prompts(3), u, sampling(length=4, compact=compact))
    assert drawn.mask_KNT[0].tolist() == [
        [True, True, False, False], [True, True, True, True], [True, False, False, False],
    ]  # fmt: skip
    assert drawn.ids_KNT[0].tolist() == [[4, 1, 0, 0], [4, 5, 6, 7], [1, 0, 0, 0]]
    assert drawn.ended_KN[0].tolist() == [True, False, True]
    assert drawn.lengths_KN[0].tolist() == [2, 4, 1]


def test_a_truncated_completion_is_flagged_and_its_ids_stay_as_sampled() -> None:
    # field case A28
    drawn = rollout(scripted(), prompts(2), u_for([[4, 5, 6], [7, 8, 1]]), sampling(length=3))
    assert valid(drawn, 0) == [4, 5, 6]
    assert valid(drawn, 1) == [7, 8, 1]
    assert drawn.ended_KN[0].tolist() == [False, True]


def test_every_stop_id_ends_a_completion() -> None:
    drawn = rollout(
        scripted((1, 9, 12)),
        prompts(4),
        u_for([[4, 9, 5], [12, 4, 5], [4, 4, 1], [4, 5, 6]]),
        sampling(length=3),
    )
    assert drawn.lengths_KN[0].tolist() == [2, 1, 3, 3]
    assert drawn.ended_KN[0].tolist() == [True, True, True, False]


def test_compact_trims_to_the_longest_completion_and_fixed_shapes_do_not() -> None:
    u = u_for([[4, 1, 5, 5, 5], [4, 5, 1, 5, 5]])
    assert rollout(scripted(), prompts(2), u, sampling(length=5)).ids_KNT.shape == (1, 2, 3)
    assert rollout(scripted(), prompts(2), u, sampling(length=5, compact=False)).ids_KNT.shape == (
        1,
        2,
        5,
    )


def test_dropping_finished_rows_changes_no_token(model: LoadedModel) -> None:
    # token 1 is made likely, so that rows end at many different lengths
    with torch.no_grad():
        model.head.weight[1] += 0.15 * model.head.weight[2:].abs().mean(0)
    model = replace(model, stop_ids=(1, 2, 3, 4, 5))
    padded, u = pad_left([SHORT, LONG, [7, 7, 7]], 0, CPU), draws(12, length=16)
    compact, fixed = (rollout(model, padded, u, sampling(4, 16, compact=c)) for c in (True, False))
    used = compact.ids_KNT.shape[-1]
    lengths = compact.lengths_KN[0].tolist()
    assert sorted(lengths)[3] <= used / 2, f"the case must drop rows (lengths {lengths})"
    assert torch.equal(compact.ids_KNT, fixed.ids_KNT[..., :used])
    assert torch.equal(compact.mask_KNT, fixed.mask_KNT[..., :used])
    assert torch.equal(compact.ended_KN, fixed.ended_KN)
    assert not fixed.mask_KNT[..., used:].any()
    torch.testing.assert_close(
        compact.sampler_logprobs_KNT, fixed.sampler_logprobs_KNT[..., :used], rtol=0, atol=2e-5
    )


def test_slots_of_unequal_lengths_are_compacted_without_mixing_them() -> None:
    model = replace(tiny.loaded(), stop_ids=(1, 2, 3, 4, 5, 6))
    stack = attach(model.body, 3, 4, 8)
    stack.flat_KP.copy_(
        0.2 * torch.randn(stack.flat_KP.shape, generator=torch.Generator().manual_seed(1))
    )
    u = draws(6, length=16, slots=3)
    three = pad_left([SHORT, LONG, [7, 7, 7]] * 3, 0, CPU)
    with stack.use(stack.view([0, 1, 2])):
        together = rollout(model, three, u, sampling(2, 16))
    assert len({tuple(row) for row in together.lengths_KN.tolist()}) == 3
    for slot in range(3):
        with stack.use(stack.view([slot])):
            alone = rollout(
                model,
                pad_left([SHORT, LONG, [7, 7, 7]], 0, CPU),
                u[slot : slot + 1],
                sampling(2, 16),
            )
        for row in range(6):
            assert valid(together, row, slot) == valid(alone, row)


def test_rows_are_grouped_by_prompt_and_differ_within_a_group() -> None:
    drawn = rollout(tiny.loaded(), pad_left([SHORT, LONG], 0, CPU), draws(8), sampling(4))
    assert drawn.prompts.ids.tolist()[:4] == [[0] * 7 + SHORT] * 4
    assert drawn.prompts.ids.tolist()[4:] == [LONG] * 4
    assert drawn.prompts.mask.tolist() == [[0] * 7 + [1] * 2] * 4 + [[1] * 9] * 4
    assert len({tuple(row) for row in drawn.ids_KNT[0, :4].tolist()}) > 1


def test_sample_is_the_inverse_cdf_exactly() -> None:
    probabilities = torch.tensor([0.125, 0.5, 0.0, 0.25, 0.125])
    logits = probabilities.log()[None]
    for u, token in (
        (0.0, 0),
        (0.124, 0),
        (0.126, 1),
        (0.624, 1),
        (0.626, 3),
        (0.874, 3),
        (0.876, 4),
        (0.99999, 4),
    ):
        drawn, logprob = sample(logits, torch.tensor([u]))
        assert int(drawn) == token, u
        assert float(logprob) == pytest.approx(float(probabilities[token].log()), abs=1e-6)


def test_an_even_grid_of_uniforms_draws_every_token_in_proportion_to_its_probability() -> None:
    logits = 2 * torch.randn(1, 12, generator=torch.Generator().manual_seed(0))
    count = 20_000
    grid = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens, _ = sample(logits.expand(count, -1), grid.float())
    counts = torch.bincount(tokens, minlength=12)
    assert float((counts - count * logits[0].double().softmax(-1)).abs().max()) <= 1.01


def test_no_uniform_draws_a_token_of_zero_probability() -> None:
    largest = float(torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)))
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 50, generator=generator)
    forbidden = torch.rand(200, 50, generator=generator) < 0.5
    forbidden[:, 0] = forbidden[:, -1] = True  # both ends, where a rounded threshold would land
    forbidden[:, 25] = False
    logits = logits.masked_fill(forbidden, -torch.inf)
    for u in (0.0, 1e-30, 2**-24, 0.5, largest):
        tokens, logprobs = sample(logits, torch.full((200,), u))
        assert torch.isfinite(logprobs).all(), u
        assert not forbidden.gather(1, tokens[:, None]).any(), u


def test_a_rare_token_is_not_lost_to_rounding_of_the_running_sum() -> None:
    # in float32 0.5 + 1e-9 is 0.5 again, and no u could ever draw token 1
    logits = torch.tensor([[0.5, 1e-9, 0.5]]).log()
    token, _ = sample(logits, torch.tensor([0.5]))
    assert int(token) == 1


def test_temperature_flattens_what_is_sampled() -> None:
    model, u = tiny.loaded(), draws(64, length=1)
    drawn = {
        t: rollout(model, pad_left([SHORT], 0, CPU), u, sampling(64, 1, temperature=t))
        for t in (0.1, 1.0, 10.0)
    }
    distinct = {t: len(set(d.ids_KNT.flatten().tolist())) for t, d in drawn.items()}
    assert distinct[0.1] < distinct[1.0] < distinct[10.0]


def test_a_row_that_is_not_finite_yields_a_valid_id_and_leaves_its_neighbours_alone() -> None:
    logits = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))
    clean = sample(logits, torch.full((3,), 0.3))
    poisoned = logits.clone()
    poisoned[1] = torch.nan
    tokens, logprobs = sample(poisoned, torch.full((3,), 0.3))
    assert 0 <= int(tokens[1]) < 10
    assert not torch.isfinite(logprobs[1])
    assert torch.equal(tokens[[0, 2]], clean[0][[0, 2]])


def test_sampling_keeps_no_gradient() -> None:
    assert not rollout(
        tiny.loaded(), prompts(1), draws(1), sampling()
    ).sampler_logprobs_KNT.requires_grad
