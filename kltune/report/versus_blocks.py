"""Findings of a comparison in, its page as a document and as plain data out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from kltune.metrics.jsonl import encode
from kltune.report.document import (
    Block,
    Code,
    Document,
    Figures,
    Grid,
    Paragraph,
    Section,
)
from kltune.report.summary import trial_data
from kltune.report.versus import Side
from kltune.report.versus_figure import gold_against_kl
from kltune.report.versus_findings import Pair, Shared, VersusFindings
from kltune.report.versus_words import answer_rows, cautions, headline
from kltune.statistics.contrast import Contrast
from kltune.trial.words import MISSING, number, score


def compose_versus(found: VersusFindings) -> Document:
    """The comparison, what can be told first."""
    sides = found.sides
    contrasts = [pair.contrast for pair in found.pairs if pair.contrast is not None]
    figure = gold_against_kl(sides)
    sections = [
        Section("Answers side by side", "answers", _answer_blocks(found)),
        Section("Can the difference be told?", "difference", _pair_blocks(found.pairs)),
        Section("Gold against KL", "frontier", () if figure is None else (Figures((figure,)),)),
        Section("The same settings in each", "shared", _shared_blocks(found)),
        Section("What differs", "specs", _spec_blocks(found)),
        Section("How to read and repeat this", "reading", _reading(sides)),
    ]
    return Document(
        title=f"kltune: {' against '.join(side.label for side in sides)}",
        subtitle=f"{len(sides)} studies, judged by the same gold",
        headline=headline(found),
        is_answer=bool(contrasts),
        is_doubtful=not all(contrast.is_told_apart for contrast in contrasts),
        sections=tuple(section for section in sections if section.blocks),
    )


def versus_data(found: VersusFindings) -> dict[str, Any]:
    """The same as strict JSON data."""
    data: dict[str, Any] = {
        "headline": headline(found),
        "cautions": list(cautions(found)),
        "studies": [
            {
                "label": side.label,
                "path": str(side.study.path),
                "num_trials": len(side.study.trials),
                "kl_unit": side.study.spec.kl_unit.value,
                "beta_unit": side.study.spec.beta_unit.value,
                "sigma_r": side.study.sigma_r,
                "best": None if side.best is None else trial_data(side.study, side.best),
                "confirmed": None if side.confirmed is None else list(side.confirmed),
            }
            for side in found.sides
        ],
        "pairs": [
            {
                "minus": pair.one.label,
                "of": pair.other.label,
                "basis": pair.basis,
                "contrast": _contrast_data(pair.contrast),
                "confirmed": None if pair.confirmed is None else list(pair.confirmed),
            }
            for pair in found.pairs
        ],
        "shared": [
            {
                "setting": shared.words,
                "trials": [row.number for row in shared.rows],
                "values": [row.value for row in shared.rows],
                "against_first": [_contrast_data(c) for c in shared.against_first],
            }
            for shared in found.shared
        ],
        "num_unshared": found.num_unshared,
        "differing": [list(row) for row in found.differing],
    }
    return cast("dict[str, Any]", json.loads(encode(data)))


def _contrast_data(contrast: Contrast | None) -> dict[str, Any] | None:
    return None if contrast is None else asdict(contrast)


def _labels(sides: Sequence[Side]) -> tuple[str, ...]:
    return tuple(side.label for side in sides)


def _answer_blocks(found: VersusFindings) -> tuple[Block, ...]:
    grid = Grid(("", *_labels(found.sides)), tuple(answer_rows(found.sides)))
    return (*(Paragraph(text, "warning") for text in cautions(found)), grid)


def _pair_blocks(pairs: Sequence[Pair]) -> tuple[Block, ...]:
    rows = [
        (
            f"{pair.other.label} − {pair.one.label}",
            *_cells(pair.contrast),
            pair.basis,
            MISSING
            if pair.confirmed is None
            else f"{pair.confirmed[0]:+.3f} ({pair.confirmed[1]:+.3f} to {pair.confirmed[2]:+.3f})",
        )
        for pair in pairs
    ]
    header = (
        "recommended settings",
        "difference (gold)",
        "95 % interval, all at once",
        "told apart",
        "what it rests on",
        "on fresh seeds and test prompts",
    )
    note = Paragraph(
        "Gold is what each search maximised, on the select prompts, which also chose each study's winner: both are a "
        "little high. A difference on fresh seeds and test prompts is there where kltune confirm was run in both studies.",
        "note",
    )
    return (Grid(header, tuple(rows), numeric=frozenset((1, 2))), note)


def _cells(contrast: Contrast | None) -> tuple[str, str, str]:
    if contrast is None:
        return (MISSING, MISSING, MISSING)
    return (
        f"{contrast.difference:+.3f}",
        f"{contrast.low:+.3f} to {contrast.high:+.3f}" if contrast.has_interval else MISSING,
        "yes" if contrast.is_told_apart else "no",
    )


def _shared_blocks(found: VersusFindings) -> tuple[Block, ...]:
    if not found.shared:
        text = f"No setting was judged in every study ({found.num_unshared} in some)."
        return (Paragraph(text, "note"),)
    first, *others = _labels(found.sides)
    differences = [
        head
        for label in others
        for head in (f"{label} − {first} (gold)", "95 % interval", "told apart")
    ]
    kls = [f"KL at peak, {label} (nats/sequence)" for label in (first, *others)]
    golds = [f"gold, {label}" for label in (first, *others)]
    header = ("setting", *golds, *differences, *kls)
    note = Paragraph(
        f"{len(found.shared)} settings that every study judged; {found.num_unshared} others were not. Recipes and the "
        "beta = 0 arm are matched by name (each study converts a recipe by its own proxy's spread), all others by "
        "their values and units. Differences as above; the intervals hold for the whole table at once.",
        "note",
    )
    rows = tuple(_shared_cells(shared) for shared in found.shared)
    numeric = frozenset(i for i, head in enumerate(header) if i and head != "told apart")
    return (Grid(header, rows, numeric=numeric), note)


def _shared_cells(shared: Shared) -> tuple[str, ...]:
    differences = [cell for contrast in shared.against_first for cell in _cells(contrast)]
    kls = [MISSING if row.peak is None else number(row.peak.kl_seq) for row in shared.rows]
    return (shared.words, *(score(row.value) for row in shared.rows), *differences, *kls)


def _spec_blocks(found: VersusFindings) -> tuple[Block, ...]:
    if not found.differing:
        return (Paragraph("Nothing: specs, prompts, scorers and models are the same."),)
    note = Paragraph(
        "Fields of the specs, defaults included (all others are the same), and fingerprints of the inputs where both are on record.",
        "note",
    )
    return (Grid(("field", *_labels(found.sides)), found.differing), note)


def _reading(sides: Sequence[Side]) -> tuple[Block, ...]:
    paths = [str(side.study.path) for side in sides]
    return (
        Paragraph(
            "KL is the exact KL(policy ‖ reference), the reference being each study's own model before training: per token "
            "the mean over all tokens, per sequence the mean over completions of the sum."
        ),
        Code(shlex.join(["kltune", "report", *paths])),
    )
