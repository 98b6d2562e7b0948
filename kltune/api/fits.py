"""A study and its answer in, the fitted objects that its report speaks of out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kltune.report.evidence import Evidence, gather_evidence
from kltune.report.law_findings import LawFindings
from kltune.report.peaks import TrialPeak
from kltune.report.ranking import Ranking
from kltune.report.recommend import Answer
from kltune.report.rows import StudyRows
from kltune.statistics.frontier import Frontier
from kltune.statistics.law import LawFit
from kltune.statistics.settling import Settling
from kltune.study.importance import Importance, measure_importance
from kltune.study.place import holds_study


@dataclass(frozen=True, slots=True)
class Fits:
    """What was fitted to a study; nothing in it is re-fitted when it is asked for again."""

    evidence: Evidence
    importance: Importance
    """Of the searched parameters; its ``unavailable`` says why there is none."""

    @property
    def ranking(self) -> Ranking:
        """Differences between settings with intervals that hold for all pairs at once."""
        return self.evidence.ranking

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Trial numbers in groups that can't be told apart, the one that may hold the best first."""
        return tuple(tuple(row.number for row in group) for group in self.ranking.groups)

    @property
    def peaks(self) -> Mapping[int, TrialPeak]:
        """Where gold peaked, by trial."""
        return self.evidence.peaks

    @property
    def laws(self) -> LawFindings:
        """All that the over-optimisation law says of the study."""
        return self.evidence.laws

    @property
    def law(self) -> Mapping[int, LawFit]:
        """Gold against the square root of sequence KL, by trial."""
        return {found.row.number: found.fit for found in self.laws.trials}

    @property
    def pooled_law(self) -> LawFit:
        """The same law fitted to all trials together."""
        return self.laws.pooled

    @property
    def settling(self) -> Mapping[int, Settling]:
        """Whether sequence KL had settled at the end, by trial."""
        return {found.row.number: found.settling for found in self.laws.trials}

    @property
    def frontier(self) -> Frontier:
        """Whether more beta gives more gold at the same KL."""
        return self.laws.frontier


def fit_study(study: StudyRows, answer: Answer) -> Fits:
    """Fit once; seeded, so that the same record gives the same."""
    return Fits(gather_evidence(study, answer), _importance(study))


def _importance(study: StudyRows) -> Importance:
    if not holds_study(study.path):
        return Importance(unavailable="the folder holds no study.db")
    return measure_importance(study.path)
