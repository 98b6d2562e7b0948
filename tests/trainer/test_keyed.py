"""Every draw has an address: nothing but (seed, purpose, step, row) decides it."""

from __future__ import annotations

import numpy as np

from kltune.trainer.keyed import Purpose, generator, prompt_indices, uniforms


def test_a_rows_uniforms_depend_on_neither_the_number_of_rows_nor_the_length() -> None:
    few = uniforms(3, Purpose.ROLLOUT, 5, 4, 10)
    many = uniforms(3, Purpose.ROLLOUT, 5, 9, 25)
    assert few.dtype == np.float32
    np.testing.assert_array_equal(few, many[:4, :10])


def test_every_part_of_an_address_changes_the_draw() -> None:
    def draw(seed: int, purpose: Purpose, step: int, row: int) -> bytes:
        return generator(seed, purpose, step, row).random(8).tobytes()

    addresses = [
        (seed, purpose, step, row)
        for seed in (0, 1, 2)
        for purpose in Purpose
        for step in (0, 1, 2)
        for row in (0, 1, 2)
    ]
    assert len({draw(*address) for address in addresses}) == len(addresses)


def test_streams_of_neighbouring_rows_do_not_overlap() -> None:
    rows = uniforms(0, Purpose.ROLLOUT, 0, 6, 400)
    steps = np.concatenate([uniforms(0, Purpose.ROLLOUT, s, 1, 400) for s in range(1, 6)])
    values = np.concatenate([rows, steps])
    # A stream that was a shifted copy of another would share most of its float32 values.
    assert len(np.unique(values)) > 0.99 * values.size


def test_the_same_seed_repeats_and_another_differs() -> None:
    once, again = (uniforms(1, Purpose.ROLLOUT, 0, 3, 7) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert (once != uniforms(2, Purpose.ROLLOUT, 0, 3, 7)).all()


def test_uniforms_are_uniform_on_the_half_open_unit_interval() -> None:
    values = uniforms(0, Purpose.SCALE, 0, 200, 100).ravel()
    assert values.min() >= 0
    assert values.max() < 1
    counts, _ = np.histogram(values, bins=20, range=(0, 1))
    expected = values.size / 20
    # chi-square with 19 degrees of freedom: 43.8 is its 0.999 quantile
    assert float(((counts - expected) ** 2 / expected).sum()) < 43.8


def test_each_epoch_visits_every_prompt_once_whatever_the_step_size() -> None:
    for per_step in (1, 3, 7, 20):
        drawn: list[int] = []
        step = 0
        while len(drawn) < 30:
            drawn += prompt_indices(4, step, 10, per_step)
            step += 1
        for epoch in range(3):
            assert sorted(drawn[10 * epoch : 10 * epoch + 10]) == list(range(10)), per_step


def test_the_order_of_prompts_is_the_same_for_any_step_size_and_changes_per_epoch_and_seed() -> (
    None
):
    one_by_one = [prompt_indices(4, step, 10, 1)[0] for step in range(30)]
    assert prompt_indices(4, 0, 10, 30) == one_by_one
    assert prompt_indices(4, 1, 10, 4) == one_by_one[4:8]
    assert one_by_one[:10] != one_by_one[10:20]
    assert prompt_indices(5, 0, 10, 10) != one_by_one[:10]
