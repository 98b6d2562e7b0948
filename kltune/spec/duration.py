"""A duration as people write it in, seconds out."""

from __future__ import annotations

import re
from typing import Any


def seconds(value: Any) -> Any:
    """Turn ``90``, ``"90s"``, ``"15m"`` or ``"2h"`` into seconds; numbers stay as they are."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", value)
    if match is None:
        raise ValueError(f"must be seconds, or like 90s, 15m, 2h (got {value!r})")
    return float(match[1]) * {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]
