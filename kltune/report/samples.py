"""A trial in, the completions that were kept at its start, its peak and its end out, prompt by prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kltune.report.document import Card
from kltune.report.rows import TrialRow
from kltune.trial.record import read_samples
from kltune.trial.words import number, score

LONGEST_TEXT = 1200
"""Characters of a completion that are shown."""

Sample = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Moment:
    """One evaluation and what was kept of it."""

    name: str
    """``start``, ``peak``, ``end``, or two of them where they are the same evaluation."""
    step: int
    by_prompt: Mapping[str, Sample]
    """The first sample of each prompt, in the order of the record."""
    num_kept: int
    """Completions kept, whatever their prompt."""

    def is_at(self, name: str) -> bool:
        """Whether it is the start, the peak or the end; it may be two of them."""
        return name in self.name.split()


def read_moments(row: TrialRow) -> tuple[Moment, ...]:
    """Start, peak and end, each evaluation once; those of which nothing was kept are left out."""
    named = (("start", row.start), ("peak", row.peak), ("end", row.final))
    names: dict[int, list[str]] = {}
    for name, point in named:
        if point is not None:
            names.setdefault(point.step, []).append(name)
    moments: list[Moment] = []
    for step, held in names.items():
        samples = read_samples(row.folder, step)
        if samples:
            found = _by_prompt(samples)
            moments.append(Moment(" and ".join(held), step, found, len(samples)))
    return tuple(moments)


def shared_prompts(moments: Sequence[Moment]) -> tuple[str, ...]:
    """Prompts of which something was kept at every moment, in the order of the record."""
    if not moments:
        return ()
    first, *rest = moments
    return tuple(key for key in first.by_prompt if all(key in m.by_prompt for m in rest))


def cards_of(moments: Sequence[Moment], prompt_id: str) -> tuple[Card, ...]:
    """One card a moment, each with its change since the one before."""
    cards: list[Card] = []
    before: Moment | None = None
    for moment in moments:
        sample = moment.by_prompt[prompt_id]
        change = "" if before is None else _change(before, before.by_prompt[prompt_id], sample)
        title = f"{moment.name} (step {moment.step})"
        cards.append(
            Card(title, shortened(str(sample.get("completion", ""))), _numbers(sample), change)
        )
        before = moment
    return tuple(cards)


def measured(sample: Sample, name: str) -> float:
    """A number of a sample; nan where it has none."""
    value = sample.get(name)
    return float(value) if isinstance(value, int | float) else math.nan


def shortened(text: str) -> str:
    """At most LONGEST_TEXT characters, saying what was left out."""
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]} … ({len(text):,} characters in all)"


def _by_prompt(samples: Sequence[Sample]) -> dict[str, Sample]:
    found: dict[str, Sample] = {}
    for sample in samples:
        found.setdefault(str(sample.get("prompt_id")), sample)
    return found


def _numbers(sample: Sample) -> str:
    golds: Mapping[str, float] = sample.get("golds") or {}
    others = "".join(f"{name} {score(value)}, " for name, value in golds.items())
    end = "ended by itself" if sample.get("ended", True) else "cut at the length limit"
    return (
        f"gold {score(measured(sample, 'gold'))}, {others}proxy {score(measured(sample, 'proxy'))}, "
        f"KL {number(measured(sample, 'kl_seq'))} nats in {sample.get('num_tokens', '?')} tokens, {end}"
    )


def _change(before: Moment, old: Sample, new: Sample) -> str:
    parts: list[str] = []
    for name in ("gold", "proxy"):
        difference = measured(new, name) - measured(old, name)
        if math.isfinite(difference):
            parts.append(f"{name} {difference:+.3f}")
    return f"since the {before.name.rsplit(' ', 1)[-1]}: {', '.join(parts)}" if parts else ""
