from __future__ import annotations

import pytest

from kltune.report import colours

ALL = (
    colours.LOW,
    colours.MIDDLE,
    colours.HIGH,
    colours.BEST,
    colours.WORST,
    colours.GOLD_COLOUR,
    colours.PROXY_COLOUR,
    colours.GREY,
)


def luminance(colour: str) -> float:
    """WCAG's relative luminance, 0 to 1."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", ALL)
def test_a_colour_stands_out_of_white_and_of_black(colour: str) -> None:
    own = luminance(colour)
    assert 1.05 / (own + 0.05) > 2
    assert (own + 0.05) / 0.05 > 3
