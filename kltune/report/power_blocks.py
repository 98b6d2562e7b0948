"""A study in, the smallest gold difference that it could have seen out: blocks for the page, facts for report.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from kltune.plan.designs import Seen, seen
from kltune.plan.noise import Measured, Scenario, scenarios, unknowns
from kltune.report.document import Block, Grid, Paragraph
from kltune.report.noise_rows import measure_noise
from kltune.report.rows import StudyRows
from kltune.trial.words import number

POWER: Final = 0.8
"""Chance of telling a true difference of that size."""


@dataclass(frozen=True, slots=True)
class _Sight:
    noise: Measured
    scenarios: tuple[Scenario, ...]
    seen: tuple[Seen, ...]


def power_blocks(study: StudyRows) -> tuple[Block, ...]:
    """What could have been seen, in a table and two sentences; empty before two settings were evaluated."""
    found = _look(study)
    if found is None:
        return ()
    names = [s.name for s in found.scenarios]
    rows = tuple(
        (_whom(comparisons), *_cells(found.seen, names, comparisons))
        for comparisons in sorted({one.comparisons for one in found.seen})
    )
    header = ("told apart are", *(f"{name} seed noise" for name in names))
    if found.scenarios[0].is_measured:
        header = ("told apart are", "smallest difference")
    return (
        Paragraph(
            f"The smallest true difference in gold that a study like this one tells apart with {POWER:.0%} chance, one "
            "run a setting. A smaller one is missed more often, and then says nothing either way. Noise from "
            f"{found.noise.source}."
        ),
        Grid(header, rows, numeric=frozenset(range(1, len(header)))),
        *(Paragraph(text, "note") for text in _notes(found)),
    )


def power_facts(study: StudyRows) -> dict[str, Any]:
    """The same as plain data, gold differences in gold; empty before two settings were evaluated."""
    found = _look(study)
    if found is None:
        return {}
    return {
        "power": POWER,
        "source": found.noise.source,
        "noise": [
            {"scenario": s.name, "words": s.words, "variances_gold2": asdict(s.noise)}
            for s in found.scenarios
        ],
        "smallest_difference_gold": [asdict(one) for one in found.seen],
        "unknowns": list(unknowns(found.noise)),
    }


def _look(study: StudyRows) -> _Sight | None:
    noise = measure_noise(study)
    if noise is None or noise.pair is None:
        return None
    noises = scenarios(noise)
    trials = sum(row.is_candidate for row in study.trials)
    return _Sight(noise, noises, seen(noises, noise.prompts, noise.samples, trials, POWER))


def _whom(comparisons: int) -> str:
    if comparisons == 1:
        return "two settings that were named beforehand"
    return f"the best and any other of {comparisons} feasible trials"


def _cells(found: Sequence[Seen], names: Sequence[str], comparisons: int) -> tuple[str, ...]:
    by_name = {one.scenario: one.difference for one in found if one.comparisons == comparisons}
    return tuple(f"{number(by_name[name], 2)} gold or more" for name in names)


def _notes(found: _Sight) -> tuple[str, ...]:
    lines = [f"{s.name.capitalize()}: {s.words}." for s in found.scenarios]
    return (" ".join(lines), *unknowns(found.noise), "kltune plan says what a smaller one takes.")
