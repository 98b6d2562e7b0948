"""Two trials in, the same prompts answered at start, peak and end side by side out, with the rule that chose them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kltune.report.document import Block, Cards, Paragraph
from kltune.report.rows import TrialRow
from kltune.report.samples import (
    Moment,
    cards_of,
    measured,
    read_moments,
    shared_prompts,
    shortened,
)

NUM_PROMPTS = {1: 4, 2: 3}
"""Prompts shown, by how many trials answer them: six groups of cards at most."""

UNCHOSEN = "Not chosen by its scores: the first prompt on record."
CHOSEN = "Chosen: its gold fell from the peak to the end, and its proxy rose."
_SAME = "The same prompt."
_NEXT = "Not chosen by its scores: the next prompt on record."


@dataclass(frozen=True, slots=True)
class Shown:
    """One trial of the gallery."""

    title: str
    row: TrialRow
    moments: tuple[Moment, ...]


def gallery_blocks(best: TrialRow | None, worst: TrialRow | None) -> tuple[Block, ...]:
    """The prompts of the most over-optimised trial, answered by it and by the recommended one.

    Empty where nothing was kept. Without an over-optimised trial the recommended one stands alone.
    """
    shown = _shown(best, worst)
    if not shown:
        return ()
    chosen = choose_prompts(shown[0].moments, NUM_PROMPTS[len(shown)])
    blocks: list[Block] = [Paragraph(_how(shown, chosen), "note")]
    for prompt_id, note in chosen:
        for place, trial in enumerate(shown):
            if prompt_id in shared_prompts(trial.moments):
                blocks.append(_cards(trial, prompt_id, note if place == 0 else _SAME))
    return tuple(blocks)


def _cards(trial: Shown, prompt_id: str, note: str) -> Cards:
    prompt = shortened(str(trial.moments[0].by_prompt[prompt_id].get("prompt", "")))
    title = f"{trial.title}, prompt {shortened(prompt_id)}"
    return Cards(title, prompt, cards_of(trial.moments, prompt_id), note)


def choose_prompts(moments: Sequence[Moment], most: int) -> tuple[tuple[str, str], ...]:
    """At most ``most`` prompts and why each: the first on record, and those that show over-optimisation.

    Among the prompts whose gold fell from the peak to the end while their proxy rose, those whose
    proxy rose the most; of equals the earlier one on record. Where there are too few, the next ones
    on record.
    """
    shared = shared_prompts(moments)
    if not shared:
        return ()
    first, *others = shared
    rises = {key: rise for key in shared if (rise := _rise(moments, key)) is not None}
    ranked = sorted(rises, key=lambda key: (-rises[key], shared.index(key)))
    picked = [key for key in ranked if key != first][: most - 1]
    why = f"{UNCHOSEN} Its gold fell from the peak to the end, and its proxy rose."
    chosen = [*((key, CHOSEN) for key in picked), (first, why if first in rises else UNCHOSEN)]
    if not picked:
        chosen += [(key, _NEXT) for key in others[:1]]
    return tuple(chosen)


def _rise(moments: Sequence[Moment], prompt_id: str) -> float | None:
    """Rise of the proxy from the peak to the end where gold fell; none otherwise."""
    peak, end = (
        next((m.by_prompt[prompt_id] for m in moments if m.is_at(name)), None)
        for name in ("peak", "end")
    )
    if peak is None or end is None:
        return None
    fall = measured(peak, "gold") - measured(end, "gold")
    rise = measured(end, "proxy") - measured(peak, "proxy")
    return rise if math.isfinite(fall + rise) and fall > 0 and rise > 0 else None


def _shown(best: TrialRow | None, worst: TrialRow | None) -> tuple[Shown, ...]:
    """The over-optimised trial first: its prompts are the ones that are shown."""
    titles: list[tuple[str, TrialRow]] = []
    if worst is not None:
        title = (
            "Most over-optimised" if worst is not best else "Recommended and most over-optimised"
        )
        titles.append((title, worst))
    if best is not None and best is not worst:
        titles.append(("Recommended", best))
    found = (Shown(f"{title}: trial {row.number}", row, read_moments(row)) for title, row in titles)
    return tuple(trial for trial in found if shared_prompts(trial.moments))


def _how(shown: Sequence[Shown], chosen: Sequence[tuple[str, str]]) -> str:
    moments = shown[0].moments
    counts = sorted({m.num_kept for m in moments})
    kept = str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    num_fell = sum(_rise(moments, key) is not None for key in shared_prompts(moments))
    total = len(shared_prompts(moments))
    text = f"Kept at each evaluation: {kept} completions (evaluate.keep in the spec). "
    if any(m.is_at("peak") and not m.is_at("end") for m in moments):
        text += (
            f"From the peak to the end of trial {shown[0].row.number} gold fell and the proxy rose on {num_fell} of the "
            f"{total} prompts that were kept at all its moments. "
        )
    if any(note == CHOSEN for _, note in chosen):
        text += "Shown are those of them whose proxy rose the most, and the first prompt on record, whatever its scores. "
    else:
        text += "Shown are the first on record, not chosen by their scores. "
    return f"{text}One completion says little: judge a trial by its means."
