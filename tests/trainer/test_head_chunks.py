"""Chunks of log-probs: how they are cut, and what each adds."""

from __future__ import annotations

import pytest
import torch

from kltune.trainer.head_chunks import Grid, Side, places_in, sums_of, top_of

V = 10


def side(temperature: float = 0.5) -> Side:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 3, generator=generator).double() for n in (4, V))
    return Side(hidden, weight, torch.arange(V).double(), temperature)


@pytest.mark.parametrize(
    ("size", "elements", "min_tokens", "rows", "columns"),
    [
        ((4, V), 40, 4, 1, 1),
        ((4, V), 39, 3, 2, 1),
        ((4, V), 10, 1, 4, 1),
        ((4, V), 20, 4, 1, 2),
        ((4, V), 6, 2, 2, 4),
        ((4, V), 1, 32, 4, 10),
        ((0, V), 40, 4, 1, 1),
    ],
)
def test_a_grid_covers_every_cell_once_within_the_budget(
    size: tuple[int, int], elements: int, min_tokens: int, rows: int, columns: int
) -> None:
    grid = Grid.over(size, elements, min_tokens)
    assert (len(grid.rows), len(grid.columns)) == (rows, columns)
    counts = torch.zeros(size)
    for row in grid.rows:
        for column in grid.columns:
            assert counts[row, column].numel() <= elements
            counts[row, column] += 1
    assert (counts == 1).all()
    assert grid.is_whole is (rows == columns == 1)


def test_the_vocabulary_stays_whole_while_the_fewest_tokens_fit() -> None:
    assert len(Grid.over((1000, 151_936), 16_000_000, 32).columns) == 1


@pytest.mark.parametrize("elements", [40, 12])
def test_log_probs_of_all_chunks_together_are_the_log_softmax(elements: int) -> None:
    model, grid = side(), Grid.over((4, V), elements, 4)
    logits = model.hidden_MD @ model.weight_VD.T + torch.arange(V)
    rows = slice(1, 3)
    norm = model.normaliser(rows, grid)
    assert (norm is None) is (len(grid.columns) == 1)
    got = torch.cat([model.log_probs(rows, c, norm) for c in grid.columns], dim=1)
    expected = (logits[rows] / 0.5).log_softmax(-1)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_a_chunk_of_forbidden_tokens_alone_leaves_the_others_as_they_were() -> None:
    bias = torch.tensor([-torch.inf, -torch.inf, -900.0, -901.0]).double()
    model = Side(torch.ones(1, 1).double(), torch.zeros(4, 1).double(), bias, 1.0)
    grid = Grid.over((1, 4), 2, 1)
    norm = model.normaliser(slice(0, 1), grid)
    got = torch.cat([model.log_probs(slice(0, 1), c, norm) for c in grid.columns], dim=1)
    torch.testing.assert_close(got[0], bias.log_softmax(-1), rtol=1e-12, atol=1e-12)


def test_places_are_those_within_the_chunk() -> None:
    ids = torch.tensor([2, 5, 7])
    places, inside = places_in(slice(4, 7), ids)
    assert inside is not None
    assert inside.tolist() == [False, True, False]
    assert places[inside].tolist() == [1]
    whole, everything = places_in(slice(0, None), ids)
    assert everything is None
    assert torch.equal(whole, ids)


def test_what_the_chunks_add_sums_to_the_whole() -> None:
    generator = torch.Generator().manual_seed(1)
    p, q = (torch.randn(4, V, generator=generator).double().log_softmax(-1) for _ in range(2))
    targets = torch.tensor([0, 3, 4, 9])
    whole = sums_of(p, q, targets, slice(0, None))
    parts = [sums_of(p[:, c], q[:, c], targets, c) for c in (slice(0, 4), slice(4, 10))]
    for i, expected in enumerate(whole):
        torch.testing.assert_close(parts[0][i] + parts[1][i], expected, rtol=1e-12, atol=1e-12)


def test_the_best_tokens_so_far_are_the_best_of_all_in_the_end() -> None:
    p = torch.randn(4, V, generator=torch.Generator().manual_seed(1)).double()
    top = top_of(p[:, :2], -p[:, :2], 0, 3, ())
    assert top[2].shape == (4, 2)
    for start in (2, 4, 6, 8):
        top = top_of(p[:, start : start + 2], -p[:, start : start + 2], start, 3, top)
    values, ids = p.topk(3)
    assert torch.equal(top[0], values)
    assert torch.equal(top[1], -values)
    assert torch.equal(top[2], ids)
