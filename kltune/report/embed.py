"""Plain data and scripts in, what may stand between two tags of a page out: strict JSON, text that can't close its tag."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from kltune.report.document import Chart, Sheet
from kltune.report.text import visible

HEAD_SCRIPTS = ("theme.js",)
"""Run before the page is painted."""
PAGE_SCRIPTS = (
    "page.js",
    "clipboard.js",
    "navigation.js",
    "palette.js",
    "charts.js",
    "tables.js",
    "trials.js",
    "live.js",
)
"""Run when the page is there, in this order and in one scope."""
BUNDLE = "plotly-cartesian-4.1.1.min.js"

# What could end a script element, start a comment in it or end a line of JavaScript.
_MARKUP = {
    ord(character): f"\\u{ord(character):04x}" for character in ("<", ">", "&", "\u2028", "\u2029")
}
_PLACES = 6
"""Significant digits of a number on the page: finer than any screen."""


def island(data: object) -> str:
    """Data as strict JSON without a character that is markup; what isn't finite is null.

    Strings are written as the page shows them (``visible``): no control character and no override
    of direction reaches a script.
    """
    text = json.dumps(_plain(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.translate(_MARKUP)


def chart_island(chart: Chart) -> str:
    """One chart as the page's script draws it."""
    return island({"data": list(chart.traces), "layout": chart.layout})


def sheets_island(sheets: Sequence[Sheet]) -> str:
    """Every trial's sheet, by its number."""
    return island(
        {
            str(sheet.number): {
                "title": sheet.title,
                "facts": sheet.facts,
                "curves": sheet.curves,
                "commands": sheet.commands,
                "kl_unit": sheet.kl_unit,
                "beta_unit": sheet.beta_unit,
            }
            for sheet in sheets
        }
    )


def script(names: Sequence[str]) -> str:
    """Scripts of the page as one, in a scope of its own.

    Raises:
        ValueError: A script could end its own element.
    """
    source = files("kltune.report")
    parts = [source.joinpath(name).read_text(encoding="utf-8") for name in names]
    text = "(() => {\n" + "\n".join(parts) + "})();"
    if "</" in text or "<!--" in text or "\r" in text:
        raise ValueError(f"{', '.join(names)}: holds text that ends a script element")
    return text


def script_hash(text: str) -> str:
    """What a Content-Security-Policy calls this script, and no other."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def bundle() -> str:
    """plotly.js as it is vendored, with its licence in its head."""
    vendor = files("kltune.report").joinpath("vendor")
    return vendor.joinpath(BUNDLE).read_text(encoding="utf-8")


def packed(text: str) -> str:
    """Text as gzip in base64: the same bytes on every day and machine."""
    data = gzip.compress(text.encode("utf-8"), compresslevel=9, mtime=0)
    named = data[:9] + b"\xff" + data[10:]  # the head's tenth byte names an operating system
    return base64.b64encode(named).decode("ascii")


def _plain(value: object) -> Any:
    """Lists, dictionaries, visible text, finite numbers, null."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return _number(value)
        case str():
            return visible(value)
        case Mapping():
            return {visible(str(key)): _plain(inner) for key, inner in value.items()}
        case Sequence():
            return [_plain(inner) for inner in value]
        case _:
            raise TypeError(f"{type(value).__name__} is not plain data")


def _number(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{_PLACES}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
