"""The trials' peaks in; when to stop, and what the procedure is worth, as blocks and as data out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kltune.report.document import Block, Facts, Grid, Paragraph
from kltune.report.peaks import TrialPeak
from kltune.report.rows import StudyRows, TrialRow
from kltune.statistics.peak import Peak
from kltune.trial.words import both_units, limit_words, number, score, setting_short

_HEADER = (
    "trial",
    "setting",
    "highest gold at step",
    "KL there (nats/token)",
    "(nats/sequence)",
    "gold there",
    "stop at step",
    "value of the procedure",
)

_NOTE = (
    "Stop: the steps (a to b, or others beyond a gap) whose gold can't be told from the trial's best on these prompts. All pairs of a trial's "
    "evaluations are compared at once, prompt by prompt, so that in 19 of 20 trials every truly best step is among "
    "them; + says that the last step is one of them, so that more steps might bring more. Gold there: mean ± standard error over the select prompts, too high by luck since it was picked as the "
    "highest. Value of the procedure: choose the step on one half of the prompts, value it on the other, swap and "
    "average; it is what choosing a step like this brings, and not the gold of one checkpoint. Another run of the "
    "same setting may peak elsewhere: prompts can't say by how much."
)

_MOST_ROWS = 40


def peak_blocks(
    study: StudyRows, best: TrialRow | None, found: Mapping[int, TrialPeak]
) -> tuple[Block, ...]:
    """The recommended trial's peak in words, then a row for each trial; empty where none has a peak."""
    if not found:
        return ()
    blocks: list[Block] = []
    if best is not None and best.number in found:
        blocks.append(Facts(_facts(found[best.number])))
    shown = _shown(found)
    cells = tuple(_cells(study, peak) for peak in shown)
    marked = frozenset(
        i for i, peak in enumerate(shown) if best is not None and peak.row.number == best.number
    )
    blocks.append(Grid(_HEADER, cells, marked, numeric=frozenset((0, 2, 3, 4, 5, 7))))
    if len(shown) < len(found):
        rest = f"The {len(shown)} trials of {len(found)} with the highest value of the procedure."
        blocks.append(Paragraph(rest, "note"))
    blocks.append(Paragraph(_NOTE, "note"))
    return tuple(blocks)


def peak_facts(found: Mapping[int, TrialPeak]) -> list[dict[str, Any]]:
    """The same for report.json; KL at the peak in both units."""
    return [
        {
            "trial": number,
            **_data(peak.peak),
            "kl_token": peak.checkpoint.kl_token,
            "kl_seq": peak.checkpoint.kl_seq,
            "feasible": peak.is_feasible,
            "stop": stop_words(peak.peak),
        }
        for number, peak in sorted(found.items())
    ]


def stop_words(peak: Peak) -> str:
    """When to stop, as far as the prompts can tell; gaps between steps as good are named."""
    first, last = peak.first_step, peak.last_step
    if not peak.is_told:
        text = (
            f"any step from {peak.tied_steps[0]} to {peak.tied_steps[-1]}: they can't be told apart"
        )
        if len(peak.tied_steps) == 1:
            text = f"at step {first}, the only one that could be chosen"
    elif first == last:
        text = f"at step {first}"
    else:
        text = f"between step {first} and {last}"
    if peak.apart:
        steps = ", ".join(str(step) for step in peak.apart)
        text += f"; as good as can be told also at step {steps}, but not at all between"
    if peak.is_open:
        text += "; the last one is among them, so more steps might bring more"
    return text


def _stop_cell(peak: Peak) -> str:
    """The same for a table; + marks that the last step is among them."""
    first, last = peak.first_step, peak.last_step
    if not peak.is_told:
        text = "any step" if peak.num_allowed > 1 else str(first)
    else:
        text = str(first) if first == last else f"{first} to {last}"
    if peak.apart:
        text += f"; or {', '.join(str(step) for step in peak.apart)}"
    return f"{text} +" if peak.is_open else text


def _facts(found: TrialPeak) -> tuple[tuple[str, str], ...]:
    peak = found.peak
    place = both_units(found.checkpoint.kl_token, found.checkpoint.kl_seq)
    window = stop_words(peak)
    return (
        ("Recommended trial", f"{found.row.number}"),
        ("Highest gold", f"{score(peak.value, peak.se)} at step {peak.step}, KL {place}"),
        ("Stop", f"{window[0].upper()}{window[1:]}."),
        (
            "Value of the procedure",
            f"{score(peak.procedure.value, peak.procedure.se)}: the step chosen on one half of the prompts "
            f"(step {' and '.join(map(str, peak.procedure.chosen_steps))}), valued on the other",
        ),
    )


def _shown(found: Mapping[int, TrialPeak]) -> list[TrialPeak]:
    kept = sorted(found.values(), key=lambda p: (-p.peak.procedure.value, p.row.number))
    return sorted(kept[:_MOST_ROWS], key=lambda p: p.row.number)


def _cells(study: StudyRows, found: TrialPeak) -> tuple[str, ...]:
    peak = found.peak
    beyond = "" if found.is_feasible else f" (no step respects {limit_words(study.spec.objective)})"
    return (
        str(found.row.number),
        setting_short(found.row.setting, study.spec.kl_unit),
        str(peak.step),
        number(found.checkpoint.kl_token),
        number(found.checkpoint.kl_seq),
        score(peak.value, peak.se),
        _stop_cell(peak) + beyond,
        score(peak.procedure.value, peak.procedure.se),
    )


def _data(peak: Peak) -> dict[str, Any]:
    data = asdict(peak)
    procedure = data.pop("procedure")
    del data["kl"]  # both units are given
    return {
        **data,
        "apart": peak.apart,
        "is_open": peak.is_open,
        "procedure_value": procedure["value"],
        "procedure_se": procedure["se"],
        "procedure_steps": procedure["chosen_steps"],
    }
