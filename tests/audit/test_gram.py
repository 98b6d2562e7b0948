from __future__ import annotations

import numpy as np
import pytest

from kltune.audit.gram import MIN_FOLDS, Gram, GramStream


def blocks(count: int, size: int = 50) -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(0)
    return [{"a": draw.normal(size=size), "b": draw.normal(size=size)} for _ in range(count)]


def stream(rows: list[dict[str, np.ndarray]], **options: object) -> Gram:
    kept = GramStream(len(rows), ("b",) if "b" in rows[0] else ("a",), **options)  # type: ignore[arg-type]
    for row in rows:
        kept.add(row)
    return kept.finish()


def test_products_are_those_of_the_blocks() -> None:
    rows = blocks(5)
    gram = stream(rows)
    expected = [[rows[f]["a"] @ rows[h]["b"] for h in range(5)] for f in range(5)]
    np.testing.assert_allclose(gram.pair("a", "b"), expected)
    np.testing.assert_allclose(gram.pair("b", "a"), np.transpose(expected))
    for name in ("a", "b"):
        own = [[rows[f][name] @ rows[h][name] for h in range(5)] for f in range(5)]
        np.testing.assert_allclose(gram.pair(name, name), own)
    assert gram.counts_F.tolist() == [1] * 5


def test_more_parameters_than_one_chunk() -> None:
    rows = blocks(3, size=20_000)
    assert stream(rows).pair("a", "a")[2, 0] == pytest.approx(rows[2]["a"] @ rows[0]["a"])


def test_what_does_not_fit_in_memory_is_summed_into_folds() -> None:
    rows = blocks(11)
    gram = stream(rows, max_bytes=5 * 2 * 50 * 8)
    assert gram.counts_F.tolist() == [3, 2, 2, 2, 2]
    first, last = (sum(r["a"] for r in rows[s]) for s in (slice(0, 3), slice(9, 11)))
    assert gram.pair("a", "a")[0, 4] == pytest.approx(first @ last)
    assert len(stream(rows, max_bytes=1).counts_F) == MIN_FOLDS


def test_float32_blocks_keep_float64_products() -> None:
    rows = [{"a": row["a"].astype(np.float32)} for row in blocks(4)]
    gram = stream(rows)
    expected = rows[1]["a"].astype(np.float64) @ rows[3]["a"].astype(np.float64)
    assert gram.pair("a", "a")[1, 3] == pytest.approx(expected, rel=1e-12)


def test_enumerated_blocks_become_one() -> None:
    rows = blocks(3)
    gram = stream(rows, is_exact=True)
    total = sum(row["a"] for row in rows)
    assert gram.pair("a", "a").tolist() == [[pytest.approx(total @ total)]]


def test_a_missing_or_extra_block_is_an_error_of_ours() -> None:
    kept = GramStream(2, ("b",))
    kept.add(blocks(1)[0])
    with pytest.raises(AssertionError, match="1 of 2"):
        kept.finish()
    kept.add(blocks(1)[0])
    with pytest.raises(AssertionError, match="more than"):
        kept.add(blocks(1)[0])
