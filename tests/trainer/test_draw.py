"""The inverse CDF against running sums in float64, for vocabularies that are cut into chunks and for small ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kltune.trainer.draw import CHUNK, WHOLE_UP_TO, sample

SIZES = [1, 30, WHOLE_UP_TO, WHOLE_UP_TO + 1, 10 * CHUNK, 10 * CHUNK + 1, 49_152]
LARGE = SIZES[3:]
ALMOST_ONE = float(torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)))


def drawn(rows: int, vocabulary: int, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(vocabulary)
    logits = scale * torch.randn(rows, vocabulary, generator=generator)
    return logits, torch.rand(rows, generator=generator)


@pytest.mark.parametrize("vocabulary", SIZES)
def test_the_token_is_the_first_whose_cumulative_probability_exceeds_u(vocabulary: int) -> None:
    logits, uniforms = drawn(64, vocabulary)
    tokens, logprobs = sample(logits, uniforms)
    exact = logits.double().log_softmax(-1)
    sums = exact.exp().cumsum(-1)
    before = sums.gather(1, tokens[:, None])[:, 0] - exact.exp().gather(1, tokens[:, None])[:, 0]
    # to the rounding of a weight in float32
    slack = 1e-6
    assert bool((before <= uniforms.double() + slack).all())
    assert bool((sums.gather(1, tokens[:, None])[:, 0] > uniforms.double() - slack).all())
    wanted = exact.gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(logprobs.double(), wanted, rtol=1e-6, atol=4e-6)
    assert logprobs.dtype == torch.float32


@pytest.mark.parametrize("vocabulary", [30, 5000])
def test_an_even_grid_draws_every_token_in_proportion_to_its_probability(vocabulary: int) -> None:
    logits, _ = drawn(1, vocabulary, scale=1.0)
    count = 20_000 if vocabulary == 30 else 2_000
    grid = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens, _ = sample(logits.expand(count, -1), grid.float())
    counts = torch.bincount(tokens, minlength=vocabulary)
    expected = count * logits[0].double().softmax(-1)
    assert float((counts - expected).abs().max()) <= 1.02
    assert bool((tokens[1:] >= tokens[:-1]).all())


@pytest.mark.parametrize("u", [0.0, 1e-30, 2**-24, 0.5, ALMOST_ONE])
@pytest.mark.parametrize("vocabulary", [50, *LARGE])
def test_no_uniform_draws_a_token_of_zero_probability(vocabulary: int, u: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, vocabulary, generator=generator)
    forbidden = torch.rand(40, vocabulary, generator=generator) < 0.5
    # both ends and whole chunks, where a rounded threshold would land
    forbidden[:, : vocabulary // 3] = forbidden[:, -(vocabulary // 3) :] = True
    forbidden[:, vocabulary // 2] = False
    tokens, logprobs = sample(logits.masked_fill(forbidden, -torch.inf), torch.full((40,), u))
    assert torch.isfinite(logprobs).all()
    assert not forbidden.gather(1, tokens[:, None]).any()


@pytest.mark.parametrize("vocabulary", [30, *LARGE])
def test_a_sure_token_is_drawn_by_any_uniform(vocabulary: int) -> None:
    for place in (0, vocabulary // 2, vocabulary - 1):
        logits = torch.full((3, vocabulary), -torch.inf)
        logits[:, place] = -7.0
        tokens, logprobs = sample(logits, torch.tensor([0.0, 0.5, ALMOST_ONE]))
        assert tokens.tolist() == [place] * 3
        assert logprobs.tolist() == [0.0] * 3


def test_a_rare_token_is_not_lost_to_rounding_of_the_running_sum() -> None:
    # in float32 0.5 + 1e-9 is 0.5 again
    for vocabulary in (3, 5000):
        logits = torch.full((1, vocabulary), -torch.inf)
        logits[0, :3] = torch.tensor([0.5, 1e-9, 0.5]).log()
        if vocabulary > CHUNK:  # the rare one in a chunk of its own
            logits[0, 2 * CHUNK], logits[0, 4 * CHUNK] = logits[0, 1], logits[0, 2]
            logits[0, 1:3] = -torch.inf
        token, _ = sample(logits, torch.tensor([0.5]))
        assert int(token) == (1 if vocabulary == 3 else 2 * CHUNK)


@pytest.mark.parametrize("vocabulary", [10, 5000])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_row_that_is_not_finite_yields_a_valid_id_and_leaves_its_neighbours_alone(
    vocabulary: int, bad: float
) -> None:
    logits, uniforms = drawn(3, vocabulary)
    clean = sample(logits, uniforms)
    poisoned = logits.clone()
    poisoned[1, 0] = bad
    tokens, logprobs = sample(poisoned, uniforms)
    assert 0 <= int(tokens[1]) < vocabulary
    assert not torch.isfinite(logprobs[1])
    assert torch.equal(tokens[[0, 2]], clean[0][[0, 2]])
    assert torch.equal(logprobs[[0, 2]], clean[1][[0, 2]])


def test_a_shift_of_all_logits_changes_no_token_and_large_ones_overflow_nothing() -> None:
    for vocabulary in (30, 5000):
        logits, uniforms = drawn(50, vocabulary)
        tokens, logprobs = sample(logits, uniforms)
        shifted, other = sample(logits + 512.0, uniforms)
        assert float((tokens == shifted).float().mean()) > 0.95  # the shift itself rounds
        same = tokens == shifted
        torch.testing.assert_close(other[same], logprobs[same], rtol=0, atol=1e-3)


def test_logits_are_left_as_they_were() -> None:
    logits, uniforms = drawn(4, 5000)
    before = logits.clone()
    sample(logits, uniforms)
    assert torch.equal(logits, before)
