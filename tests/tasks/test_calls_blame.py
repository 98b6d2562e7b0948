from __future__ import annotations

from collections.abc import Sequence

import pytest

from kltune.tasks.calls_blame import find_blamed
from kltune.tasks.calls_checked import ScorerRaisedError, ScorerTimeoutError
from kltune.tasks.protocol import Prompt, Sample

ERROR = ScorerRaisedError("all of them")


def samples(texts: str) -> list[Sample]:
    return [Sample(Prompt(str(i), "q"), text, (1,), True) for i, text in enumerate(texts)]


def raises_on_x(given: Sequence[Sample]) -> list[float]:
    if any(sample.text == "x" for sample in given):
        raise ScorerRaisedError("no x")
    return [0.0] * len(given)


@pytest.mark.parametrize("texts", ["x", "axaa", "xx", "aaaaxaax", "xaaaaaaa"])
def test_exactly_those_that_fail_alone_are_found(texts: str) -> None:
    found = find_blamed(raises_on_x, samples(texts), ERROR, most=8)
    assert sorted(found) == [i for i, text in enumerate(texts) if text == "x"]


def test_one_in_64_is_found_in_few_calls() -> None:
    calls = 0

    def counted(given: Sequence[Sample]) -> list[float]:
        nonlocal calls
        calls += 1
        return raises_on_x(given)

    assert list(find_blamed(counted, samples("a" * 40 + "x" + "a" * 23), ERROR, most=8)) == [40]
    assert calls == 12


def test_the_search_stops_beyond_the_bound() -> None:
    found = find_blamed(raises_on_x, samples("x" * 64), ERROR, most=3)
    assert len(found) == 4


def test_nobody_is_blamed_for_a_failure_of_several_together() -> None:
    def whole(given: Sequence[Sample]) -> list[float]:
        if len(given) == 4:
            raise ERROR
        return [0.0] * len(given)

    assert find_blamed(whole, samples("aaaa"), ERROR, most=8) == {}


def test_a_call_that_hangs_ends_the_search() -> None:
    def hangs(given: Sequence[Sample]) -> list[float]:
        raise ScorerTimeoutError(f"{len(given)}")

    with pytest.raises(ScorerTimeoutError, match=r"^2$"):
        find_blamed(hangs, samples("aaaa"), ERROR, most=8)
