from __future__ import annotations

import dataclasses

import tiny
import torch

from kltune.trainer.enumerate import MAX_COMPLETIONS, every_completion, is_small


def test_small_is_vocabulary_to_the_power_of_the_length() -> None:
    assert is_small(8, 4)
    assert MAX_COMPLETIONS == 8**4
    assert not is_small(8, 5)
    assert not is_small(30, 6)


def test_every_completion_is_there_once_and_ends_at_its_first_stop() -> None:
    model = tiny.loaded()
    ids, mask, ended = every_completion(model, 2)
    assert model.stop_ids == (1,)
    rows = {tuple(row[valid].tolist()) for row, valid in zip(ids, mask, strict=True)}
    assert len(rows) == len(ids) == 1 + 29 * 30
    assert (1,) in rows
    assert all(1 not in row[:-1] for row in rows)
    assert ended.tolist() == [
        bool(row[valid][-1] == 1) for row, valid in zip(ids, mask, strict=True)
    ]
    assert ids[~mask].unique().tolist() == [model.pad_id]


def test_probabilities_of_all_completions_add_up_to_one() -> None:
    model = tiny.loaded()
    several = dataclasses.replace(model, stop_ids=(1, 5))
    ids, mask, _ = every_completion(several, 3)
    first = torch.full((30,), 1 / 30, dtype=torch.float64).log()
    logprobs = first[ids].where(mask, 0.0).sum(dim=1)
    assert torch.isclose(logprobs.exp().sum(), torch.tensor(1.0, dtype=torch.float64))
