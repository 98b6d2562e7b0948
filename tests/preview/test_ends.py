from __future__ import annotations

import pytest

from kltune.preview.ends import Found, Take, fitted

SEEN, NARROW, WIDEN, KEEP = Take.AS_SEEN, Take.NARROW, Take.WIDEN, Take.KEEP


@pytest.mark.parametrize(
    ("takes", "own", "ends"),
    [
        ((SEEN, SEEN), (1.0, 9.0), (3.0, 6.0)),
        ((SEEN, SEEN), (4.0, 5.0), (3.0, 6.0)),
        ((SEEN, SEEN), None, (3.0, 6.0)),
        ((NARROW, KEEP), (1.0, 9.0), (3.0, 9.0)),
        ((NARROW, KEEP), (4.0, 5.0), (4.0, 5.0)),
        ((NARROW, KEEP), None, (3.0, None)),
        ((KEEP, NARROW), (1.0, 9.0), (1.0, 6.0)),
        ((SEEN, WIDEN), (1.0, 9.0), (3.0, 9.0)),
        ((SEEN, WIDEN), (1.0, 5.0), (3.0, 6.0)),
        ((SEEN, WIDEN), None, (3.0, None)),
        ((WIDEN, SEEN), (4.0, 9.0), (3.0, 6.0)),
        ((KEEP, KEEP), None, None),
        ((NARROW, KEEP), (1.0, 2.0), (1.0, 2.0)),  # all seen lies above the spec's range
        ((KEEP, NARROW), (7.0, 9.0), (7.0, 9.0)),  # and below it
    ],
)
def test_each_end_follows_what_was_seen_on_its_side(
    takes: tuple[Take, Take],
    own: tuple[float, float] | None,
    ends: tuple[float | None, float | None] | None,
) -> None:
    assert fitted(Found("beta", 3.0, 6.0, takes), own)[0] == ends


def test_an_end_that_is_not_what_was_seen_says_why() -> None:
    _, said = fitted(Found("beta", None, 6.0, (KEEP, NARROW)), (1.0, 5.0))
    assert said == [
        "lower end of beta: kept from the spec: the sample ends before gold turns",
        "upper end of beta: kept from the spec, which is narrower already",
    ]
    _, said = fitted(Found("beta", 3.0, 6.0, (KEEP, NARROW)), (7.0, 9.0))
    assert said == [
        "beta: kept from the spec, though what was seen asks for one below its whole range: set it by hand"
    ]
