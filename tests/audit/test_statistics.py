from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from kltune.audit.gram import Gram, GramStream
from kltune.audit.statistics import Alignment, align, length, squared_length

SIZE, BLOCKS, REPEATS, NOISE = 400, 64, 300, 10.0
COSINE, RATIO = 0.8, 1.5


def truth() -> tuple[np.ndarray, np.ndarray]:
    """A reference of length 1 and a gradient at a known angle and length."""
    reference, other = np.zeros(SIZE), np.zeros(SIZE)
    reference[0] = 1.0
    other[:2] = RATIO * COSINE, RATIO * math.sqrt(1 - COSINE**2)
    return reference, other


def noisy(draw: np.random.Generator, shared: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    """[B, P] of both: noise ten times the signal, partly the same, as of the same samples."""
    reference, other = truth()
    scale = NOISE / math.sqrt(SIZE)
    common, own, theirs = (scale * draw.normal(size=(BLOCKS, SIZE)) for _ in range(3))
    rest = math.sqrt(1 - shared**2)
    return reference + shared * common + rest * theirs, other + RATIO * (
        shared * common + rest * own
    )


def gram_of(reference_BP: np.ndarray, other_BP: np.ndarray, **options: object) -> Gram:
    stream = GramStream(len(reference_BP), ("reference",), **options)  # type: ignore[arg-type]
    for reference, other in zip(reference_BP, other_BP, strict=True):
        stream.add({"reference": reference, "g": other})
    return stream.finish()


def exact(**gradients: list[float]) -> Gram:
    stream = GramStream(1, ("reference",), is_exact=True)
    stream.add({name: np.array(values) for name, values in gradients.items()})
    return stream.finish()


@functools.cache
def repeated(shared: float) -> tuple[list[Alignment], list[float]]:
    draw = np.random.default_rng(1)
    aligned: list[Alignment] = []
    plug_in: list[float] = []
    for _ in range(REPEATS):
        reference_BP, other_BP = noisy(draw, shared)
        aligned.append(align(gram_of(reference_BP, other_BP), "g", "reference"))
        a, b = reference_BP.mean(axis=0), other_BP.mean(axis=0)
        plug_in.append(float(a @ b / math.sqrt((a @ a) * (b @ b))))
    return aligned, plug_in


@pytest.mark.parametrize("shared", [0.0, 0.99])
def test_products_of_different_blocks_find_the_true_angle_and_length(shared: float) -> None:
    aligned, plug_in = repeated(shared)
    told = [one for one in aligned if one.cosine is not None and one.ratio is not None]
    assert len(told) > 0.97 * REPEATS
    for name, true in (("cosine", COSINE), ("ratio", RATIO)):
        values = np.array([getattr(one, name).value for one in told])
        ses = np.array([getattr(one, name).se for one in told])
        # A ratio of estimates has a bias of the order of its variance: small beside one error bar.
        assert abs(np.median(values) - true) < 0.35 * np.median(ses)
        within = {n: float(np.mean(np.abs(values - true) < n * ses)) for n in (1, 2, 3)}
        assert 0.58 < within[1] < 0.78, within
        assert 0.90 < within[2] < 0.995, within
        assert within[3] > 0.97, within
    # The cosine of the two mean gradients is off by several of its own standard deviations.
    assert abs(np.mean(plug_in) - COSINE) > 2 * np.std(plug_in)


def test_plug_in_errs_down_with_noise_of_their_own_and_up_with_the_same_noise() -> None:
    assert np.mean(repeated(0.0)[1]) < 0.5
    assert np.mean(repeated(0.99)[1]) > 0.88


def test_the_squared_length_is_unbiased_and_its_error_calibrated() -> None:
    draw = np.random.default_rng(2)
    found = [squared_length(gram_of(*noisy(draw)), "g") for _ in range(REPEATS)]
    values, ses = np.array([f.value for f in found]), np.array([f.se for f in found])
    assert abs(values.mean() - RATIO**2) < 3 * values.std() / math.sqrt(REPEATS)
    assert 0.9 < math.sqrt(float(np.mean(ses**2))) / values.std() < 1.15


def test_pure_noise_is_not_given_a_direction() -> None:
    draw = np.random.default_rng(3)
    found = []
    for _ in range(100):
        reference_BP, other_BP = noisy(draw)
        found.append(align(gram_of(reference_BP, other_BP - truth()[1]), "g", "reference"))
    assert sum(one.cosine is None for one in found) >= 97
    assert all(one.ratio is None for one in found if one.cosine is None)
    limits = [one.ratio_limit for one in found if one.ratio_limit is not None]
    assert len(limits) == 100
    assert 0.2 < np.median(limits) < 1.2  # noise is told from anything longer than this


def test_a_reference_that_is_noise_says_nothing() -> None:
    reference_BP, other_BP = noisy(np.random.default_rng(4))
    aligned = align(gram_of(reference_BP - truth()[0], other_BP), "g", "reference")
    assert aligned == Alignment(None, None, None, None)
    assert not aligned.is_known


def test_the_same_samples_cancel_where_two_gradients_are_equal() -> None:
    reference_BP, _ = noisy(np.random.default_rng(5))
    aligned = align(gram_of(reference_BP, 2 * reference_BP), "g", "reference")
    assert aligned.cosine is not None
    assert aligned.ratio is not None
    assert (aligned.cosine.value, aligned.ratio.value) == (pytest.approx(1), pytest.approx(2))
    assert max(aligned.cosine.se, aligned.ratio.se) < 1e-9


def test_folds_of_several_blocks_are_as_unbiased_as_blocks() -> None:
    draw = np.random.default_rng(6)
    values = []
    for _ in range(REPEATS):
        gram = gram_of(*noisy(draw), max_bytes=13 * 2 * SIZE * 8)
        assert len(gram.counts_F) == 13  # of 4 and 5 blocks
        values.append(squared_length(gram, "g").value)
    assert abs(np.mean(values) - RATIO**2) < 3 * np.std(values) / math.sqrt(REPEATS)


def test_enumerated_gradients_have_no_error_bars() -> None:
    gram = exact(reference=[1.0, 0.0], g=[0.0, 2.0], same=[3.0, 0.0], none=[1e-9, 0.0])
    at_right_angles = align(gram, "g", "reference")
    assert at_right_angles.cosine is not None
    assert (at_right_angles.cosine.value, at_right_angles.cosine.se) == (0.0, 0.0)
    assert at_right_angles.missed == pytest.approx(math.sqrt(5))
    same = align(gram, "same", "reference")
    assert same.cosine is not None
    assert same.ratio is not None
    assert (same.cosine.value, same.ratio.value) == (pytest.approx(1), pytest.approx(3))
    assert align(gram, "none", "reference").cosine is None
    found = length(gram, "g")
    assert found is not None
    assert found.value == pytest.approx(2)


def test_a_length_that_is_noise_is_none() -> None:
    reference_BP, other_BP = noisy(np.random.default_rng(7))
    gram = gram_of(reference_BP - truth()[0], other_BP)
    assert length(gram, "reference") is None
    found = length(gram, "g")
    assert found is not None
    assert abs(found.value - RATIO) < 4 * found.se
