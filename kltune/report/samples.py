"""Two trials in, what their models wrote at the start, at the peak and at the end out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kltune.report.document import Block, Card, Cards, Paragraph
from kltune.report.rows import TrialRow
from kltune.trial.record import read_samples
from kltune.trial.words import number, score

NUM_PROMPTS = 2
LONGEST_TEXT = 1200
"""Characters of a completion that are shown."""

Sample = Mapping[str, Any]


def sample_blocks(best: TrialRow | None, worst: TrialRow | None) -> tuple[Block, ...]:
    """Completions side by side; empty where nothing was kept."""
    blocks: list[Block] = []
    for title, row in (("Recommended", best), ("Most over-optimised", worst)):
        if row is not None and not (title != "Recommended" and row is best):
            blocks += _trial_cards(f"{title}: trial {row.number}", row)
    if blocks:
        note = f"The first {NUM_PROMPTS} prompts that were kept at all three steps, not chosen by their scores."
        blocks.insert(0, Paragraph(note, "note"))
    return tuple(blocks)


def _trial_cards(title: str, row: TrialRow) -> list[Block]:
    moments = _moments(row)
    by_moment = [(name, step, _by_prompt(read_samples(row.folder, step))) for name, step in moments]
    if not by_moment:
        return []
    shared = [key for key in by_moment[0][2] if all(key in found for _, _, found in by_moment)]
    return [
        Cards(
            f"{title}, prompt {index}",
            shortened(str(by_moment[0][2][key].get("prompt", ""))),
            tuple(_card(f"{name} (step {step})", found[key]) for name, step, found in by_moment),
        )
        for index, key in enumerate(shared[:NUM_PROMPTS], start=1)
    ]


def _moments(row: TrialRow) -> list[tuple[str, int]]:
    """Start, peak and end, each step once."""
    named = (("start", row.start), ("peak", row.peak), ("end", row.final))
    moments: dict[int, str] = {}
    for name, point in named:
        if point is not None:
            held = moments.get(point.step)
            moments[point.step] = name if held is None else f"{held} and {name}"
    return [(name, step) for step, name in moments.items()]


def _by_prompt(samples: Sequence[Sample]) -> dict[str, Sample]:
    """The first sample of each prompt."""
    found: dict[str, Sample] = {}
    for sample in samples:
        found.setdefault(str(sample.get("prompt_id")), sample)
    return found


def _card(title: str, sample: Sample) -> Card:
    cut = "" if sample.get("ended", True) else ", cut at the length limit"
    return Card(
        title=title,
        completion=shortened(str(sample.get("completion", ""))),
        numbers=(
            f"gold {score(sample.get('gold'))}, {_further(sample)}proxy {score(sample.get('proxy'))}, "
            f"KL {number(sample.get('kl_seq'))} nats in {sample.get('num_tokens', '?')} tokens{cut}"
        ),
    )


def _further(sample: Sample) -> str:
    golds: Mapping[str, float] = sample.get("golds") or {}
    return "".join(f"{name} {score(value)}, " for name, value in golds.items())


def shortened(text: str) -> str:
    """At most LONGEST_TEXT characters, saying what was left out."""
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]} … ({len(text):,} characters in all)"
