"""Colours of the report's drawings: all readable on white and on black, none the only thing that tells two apart."""

from __future__ import annotations

from typing import Final

LOW: Final = "#3b82f6"
MIDDLE: Final = "#a489b4"
HIGH: Final = "#f59e0b"
"""Low, middle and high of a scale: blue over grey to orange."""
BEST: Final = "#16a34a"
WORST: Final = "#dc2626"
GOLD_COLOUR: Final = "#0d9488"
PROXY_COLOUR: Final = "#8b5cf6"
KL_COLOUR: Final = "#3b82f6"
BETA_COLOUR: Final = "#f59e0b"
GREY: Final = "#808890"
"""What a drawing has in the page's ink, where a chart can't follow it."""
SCALE: Final = ((0.0, LOW), (0.5, MIDDLE), (1.0, HIGH))
