"""A study and its answer in, what the statistics say of them out: found once, for the page and for report.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kltune.report.confirm_blocks import confirm_blocks, confirm_facts
from kltune.report.document import Section
from kltune.report.forecast_blocks import forecast_blocks, forecast_facts
from kltune.report.golds import golds_facts
from kltune.report.golds_blocks import golds_blocks
from kltune.report.law_blocks import law_blocks, law_facts
from kltune.report.law_findings import LawFindings, find_laws
from kltune.report.noise_blocks import noise_blocks, noise_facts
from kltune.report.peak_blocks import peak_blocks, peak_facts
from kltune.report.peaks import TrialPeak, find_peaks
from kltune.report.power_blocks import power_blocks, power_facts
from kltune.report.ranking import Ranking, rank
from kltune.report.recommend import Answer, Recommendation
from kltune.report.rows import StudyRows, TrialRow


@dataclass(frozen=True, slots=True)
class Evidence:
    """What takes resampling to find."""

    ranking: Ranking
    peaks: Mapping[int, TrialPeak]
    """By trial number."""
    laws: LawFindings


def gather_evidence(study: StudyRows, answer: Answer) -> Evidence:
    """Rank, look for peaks, fit the law; seeded, so that the same record says the same."""
    ranking = answer.ranking if isinstance(answer, Recommendation) else rank(study)
    return Evidence(ranking, find_peaks(study), find_laws(study, _best(answer)))


def evidence_sections(study: StudyRows, answer: Answer, found: Evidence) -> list[Section]:
    """From the strongest evidence to the weakest; a section without blocks is not shown."""
    best = _best(answer)
    return [
        Section("Confirmed on fresh seeds?", "confirmed", confirm_blocks(study, answer)),
        Section("How sure: what can be told apart", "noise", noise_blocks(study, found.ranking)),
        Section("What this study could have seen", "power", power_blocks(study)),
        Section("When gold peaks", "peaks", peak_blocks(study, best, found.peaks)),
        Section("How far to go: gold against KL", "law", law_blocks(study, found.laws)),
        Section("The other golds", "golds", golds_blocks(study, answer)),
        Section("Forecast before training", "forecast", forecast_blocks(study)),
    ]


def evidence_facts(study: StudyRows, answer: Answer, found: Evidence) -> dict[str, Any]:
    """The same as plain data for report.json."""
    return {
        **confirm_facts(study, answer),
        "noise": noise_facts(found.ranking),
        "power": power_facts(study),
        "peaks": peak_facts(found.peaks),
        "law": law_facts(found.laws),
        "golds": golds_facts(study, answer),
        "forecast": forecast_facts(study),
    }


def _best(answer: Answer) -> TrialRow | None:
    return answer.best if isinstance(answer, Recommendation) else None
