from __future__ import annotations

import numpy as np
import pytest
import tiny

from kltune.errors import RunError
from kltune.launch.assemble import Ground
from kltune.launch.preview_draw import ROWS, Plan, completions_of, draw_policy, scores_PN
from kltune.spec.trainer import TrainerSpec


@pytest.fixture(scope="module")
def ground() -> Ground:
    loaded = tiny.loaded()
    return Ground(loaded, tiny.task_data(loaded))


def plan(ground: Ground, samples: int = 3, prompts: int | None = None) -> Plan:
    count = len(ground.data.select) if prompts is None else prompts
    trainer = TrainerSpec(steps=1, prompts=2, group_size=2, max_new_tokens=5)
    return Plan(tuple(range(count)), samples, 0, trainer)


def texts(ground: Ground, wanted: Plan, policy: int = 0) -> np.ndarray:
    drawn = draw_policy(ground, wanted, wanted.samples, policy)
    samples = completions_of(ground, wanted, drawn, wanted.samples)
    return np.array([s.text for s in samples]).reshape(len(wanted.indices), -1)


def test_completions_come_by_prompt_then_completion(ground: Ground) -> None:
    wanted = plan(ground)
    drawn = draw_policy(ground, wanted, 3)
    samples = completions_of(ground, wanted, drawn, 3)
    ids = [prompt.id for prompt in ground.data.select.prompts]
    assert [s.prompt.id for s in samples] == [one for one in ids for _ in range(3)]


def test_neither_more_completions_nor_chunks_change_the_first(ground: Ground) -> None:
    few, many = texts(ground, plan(ground, 3)), texts(ground, plan(ground, ROWS))
    assert (many[:, :3] == few).all()


def test_another_policy_has_uniforms_of_its_own(ground: Ground) -> None:
    wanted = plan(ground, 16)
    assert (texts(ground, wanted, 0) != texts(ground, wanted, 1)).mean() > 0.5


def test_a_scorer_that_fails_is_a_run_error(ground: Ground) -> None:
    class Broken:
        name = "broken"

        def __call__(self, samples):
            raise ZeroDivisionError("by nothing")

    wanted = plan(ground, 2)
    samples = completions_of(ground, wanted, draw_policy(ground, wanted, 2), 2)
    with pytest.raises(RunError, match="scorer broken raised ZeroDivisionError"):
        scores_PN(Broken(), samples, wanted)


def test_what_a_scorer_skips_is_nan(ground: Ground) -> None:
    class Skips:
        name = "skips"

        def __call__(self, samples):
            return [None, *(1.0 for _ in samples[1:])]

    wanted = plan(ground, 2)
    samples = completions_of(ground, wanted, draw_policy(ground, wanted, 2), 2)
    scores = scores_PN(Skips(), samples, wanted)
    assert scores.shape == (len(wanted.indices), 2)
    assert np.isnan(scores[0, 0])
    assert np.isfinite(scores).sum() == scores.size - 1
