"""The tables of a study's README, from results.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def markdown(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def interval_words(found: Mapping[str, float], digits: int = 2) -> str:
    """A mean with its interval: ``0.91 (0.73 to 1.09)``."""
    # Adding 0 takes the sign from a -0.
    mean, low, high = (
        f"{round(found[name], digits) + 0.0:.{digits}f}" for name in ("mean", "low", "high")
    )
    return f"{mean} ({low} to {high})"


def filled(readme: str, tables: Mapping[str, str]) -> str:
    """The README with every named part written anew; a part that it has no place for is a mistake."""
    for name, text in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        for mark in (begin, end):
            assert mark in readme, f"README.md: no place for {name} ({mark} is absent)"
        before, rest = readme.split(begin, 1)
        readme = f"{before}{begin}\n{text.strip()}\n{end}{rest.split(end, 1)[1]}"
    return readme
