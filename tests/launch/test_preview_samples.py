"""Specs and studies of the built-in task become scored completions; few samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spec_files import minimal, write

from kltune.errors import RunError, SpecError
from kltune.launch.preview import Drawn, PreviewRequest
from kltune.launch.preview_samples import FEWEST, MOST, default_samples, draw_samples, drop_unscored
from kltune.preview.curves import Scored
from kltune.spec.load import load_spec
from kltune.tasks.kitchen.task import splits


def spec(**changes: Any) -> dict[str, Any]:
    trainer = {"steps": 2, "prompts": 2, "group_size": 4, "max_new_tokens": 6}
    return {**minimal(), "trainer": trainer, **changes}


def drawn(folder: Path, **fields: Any) -> Drawn:
    request = PreviewRequest(write(folder, spec()), **fields)
    return draw_samples(request, request.load("spec"), None)


def test_a_spec_gives_scored_completions_of_its_select_prompts(tmp_path: Path) -> None:
    found = drawn(tmp_path, samples=5, prompts=3)
    scored = found.scored
    assert scored.proxy_PN.shape == scored.gold_PN.shape == scored.tokens_PN.shape == (3, 5)
    assert scored.num_reference == 5
    assert scored.log_density_PN is None
    assert found.train is not None
    assert found.train.proxy_PN.shape == (32, 4)  # as sigma_R: prompts x group_size
    assert scored.tokens_PN.min() >= 1
    assert scored.tokens_PN.max() <= 6
    assert np.unique(scored.proxy_PN).size > 5
    about = found.subject
    assert (about.split, about.num_prompts, about.num_samples, about.seed) == ("select", 3, 5, 0)


def test_more_completions_leave_the_first_as_they_are(tmp_path: Path) -> None:
    few, many = (drawn(tmp_path, samples=n, prompts=3).scored for n in (3, 6))
    np.testing.assert_allclose(many.proxy_PN[:, :3], few.proxy_PN, atol=1e-5)
    np.testing.assert_array_equal(many.gold_PN[:, :3], few.gold_PN)


def test_another_seed_draws_others(tmp_path: Path) -> None:
    first, second = (drawn(tmp_path, samples=4, prompts=3, seed=s).scored for s in (0, 1))
    assert not np.allclose(first.proxy_PN, second.proxy_PN)


def test_more_prompts_than_there_are_is_refused(tmp_path: Path) -> None:
    there = len(splits().select)
    with pytest.raises(SpecError, match=f"--prompts: the select split has {there} prompts"):
        drawn(tmp_path, samples=2, prompts=there + 1)


def test_the_default_fits_the_model() -> None:
    assert default_samples(351_000, 64 * 32, is_cpu=True) == 128  # the built-in task
    assert default_samples(135_000_000, 32 * 24, is_cpu=True) == FEWEST  # SmolLM2-135M
    assert default_samples(1000, 10, is_cpu=True) == MOST
    assert default_samples(10**9, 10**6, is_cpu=False) == MOST


def test_what_could_not_be_scored_is_left_out_evenly() -> None:
    proxy = np.arange(24.0).reshape(3, 8)
    proxy[0, 1] = proxy[0, 2] = np.nan
    proxy[2, :5] = np.nan  # this prompt is lost
    scored, notes = drop_unscored(Scored(proxy, proxy * 2, proxy * 0 + 1, 8))
    assert scored.proxy_PN.tolist() == [[0, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13]]
    assert scored.gold_PN.tolist() == (scored.proxy_PN * 2).tolist()
    assert scored.num_reference == 6
    assert "7 of 24 completions could not be scored" in notes[0]
    assert "2 prompts with 6 completions each remain" in notes[0]


def test_nothing_scored_is_an_error() -> None:
    nothing = np.full((2, 4), np.nan)
    with pytest.raises(RunError, match="fewer than half"):
        drop_unscored(Scored(nothing, nothing, nothing, 4))


def test_load_checks_the_paths_of_a_spec(tmp_path: Path) -> None:
    path = write(tmp_path, spec(model={"base": "builtin:nothing"}))
    load_spec(path)
    with pytest.raises(SpecError, match=r"model\.base"):
        PreviewRequest(path).load("spec")
