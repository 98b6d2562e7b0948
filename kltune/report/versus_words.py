"""Findings of a comparison in, its sentences out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from kltune.report.answer import answer_facts
from kltune.report.recommend import NoAnswer, Recommendation
from kltune.report.rows import StudyRows
from kltune.report.unended import progress_words
from kltune.report.versus import Side
from kltune.report.versus_findings import Pair, VersusFindings
from kltune.statistics.contrast import Contrast, mean_interval
from kltune.trial.outcome import TrialState
from kltune.trial.words import MISSING, both_units, duration, number, score

_FACTS = ("Setting", "In your framework", "Stop")


def headline(found: VersusFindings) -> str:
    """What can be told, in one or two sentences."""
    if len(found.pairs) == 1:
        return _pair_sentence(found.pairs[0])
    told = [
        pair for pair in found.pairs if pair.contrast is not None and pair.contrast.is_told_apart
    ]
    if not told:
        return f"No two of these {len(found.sides)} studies can be told apart by their recommended settings."
    return " ".join(_pair_sentence(pair) for pair in told)


def _pair_sentence(pair: Pair) -> str:
    one, other, contrast = pair.one, pair.other, pair.contrast
    if contrast is None:
        return f"{one.label} and {other.label} can't be compared by their recommended settings: {pair.basis}."
    if not contrast.has_interval:
        return (
            f"The recommended settings of {one.label} and {other.label} differ by {abs(contrast.difference):.3f} gold on "
            f"every prompt alike, as the same run does: nothing can be told; {pair.basis}.{_confirmed_words(pair)}"
        )
    upper, lower = (other, one) if contrast.difference >= 0 else (one, other)
    by = f"{abs(contrast.difference):.3f} gold (95 % interval {_interval(contrast)})"
    if contrast.is_told_apart:
        words = f"The recommended setting of {upper.label} has more gold than that of {lower.label}, by {by}"
    else:
        words = (
            f"The recommended settings of {one.label} and {other.label} can't be told apart: "
            f"{upper.label} is higher by {by}"
        )
    return f"{words}; {pair.basis}.{_confirmed_words(pair)}"


def _interval(contrast: Contrast) -> str:
    ends = (
        (contrast.low, contrast.high)
        if contrast.difference >= 0
        else (-contrast.high, -contrast.low)
    )
    return f"{ends[0]:+.3f} to {ends[1]:+.3f}"


def _confirmed_words(pair: Pair) -> str:
    if pair.confirmed is None:
        return ""
    difference, low, high = pair.confirmed
    return (
        f" On fresh seeds and test prompts {pair.other.label} minus {pair.one.label} is {difference:+.3f} gold "
        f"(95 % interval {low:+.3f} to {high:+.3f})."
    )


def answer_rows(sides: tuple[Side, ...]) -> list[tuple[str, ...]]:
    """The answers side by side: a label, then one text a study."""
    columns = [dict(_answer(side)) for side in sides]
    labels = dict.fromkeys(label for column in columns for label in column)
    return [(label, *(column.get(label, MISSING) for column in columns)) for label in labels]


def _answer(side: Side) -> Iterator[tuple[str, str]]:
    study, answer, best = side.study, side.answer, side.best
    yield "Trials", _progress(study)
    if isinstance(answer, NoAnswer):
        yield "Recommended", f"none: {answer.reason}"
    if isinstance(answer, Recommendation) and best is not None and best.peak is not None:
        yield "Recommended", f"trial {best.number}"
        facts = dict(answer_facts(study, answer))
        for label in _FACTS:
            if label in facts:
                yield label, facts[label]
        yield "Gold", _gold(side)
        yield (
            "Gold on fresh seeds and test prompts",
            MISSING if side.confirmed is None else _with_interval(*side.confirmed),
        )
        yield "Gold before training", MISSING if best.start is None else score(best.start.gold)
        yield "KL at the peak", both_units(best.peak.kl_token, best.peak.kl_seq)
        yield "May be as good", f"{len(answer.tied)} other settings of the study"
    yield "Model", study.spec.model.base
    yield "sigma_R (raw proxy reward)", number(study.sigma_r)
    tokens = study.reference.get("mean_tokens")
    yield (
        "Tokens per completion before training",
        number(tokens) if isinstance(tokens, int | float) else MISSING,
    )
    yield "Time in slots", duration(sum(row.seconds for row in study.trials))


def _progress(study: StudyRows) -> str:
    return progress_words(study) if study.trials else "none yet"


def _gold(side: Side) -> str:
    best = side.best
    scores = None if best is None else side.scores(best)
    if scores is None:
        return MISSING if best is None else score(best.value)
    return f"{_with_interval(float(scores.mean()), *mean_interval(scores))} on {len(scores)} select prompts"


def _with_interval(value: float, low: float, high: float) -> str:
    return f"{score(value)} (95 % interval {score(low)} to {score(high)})"


def cautions(found: VersusFindings) -> tuple[str, ...]:
    """What a reader must know before believing a difference."""
    texts: list[str] = []
    if found.is_other_model:
        paths = shlex.join(str(side.study.path) for side in found.sides)
        texts.append(
            "The models differ, so gold and KL differ by the model as well as by the settings. How settings carry over "
            f"from one size to another is the question of: kltune transfer {paths}"
        )
    limits = {(s.study.spec.objective.kl_limit, s.study.spec.kl_unit) for s in found.sides}
    if len(limits) > 1:
        texts.append(
            "The KL limits differ: a study that may move further can reach more gold. Compare at the KL that you can afford."
        )
    counts = [len(side.study.trials) for side in found.sides]
    if len(set(counts)) > 1:
        texts.append(
            f"The studies ran {', '.join(map(str, counts))} trials: the best of more trials is higher by chance alone. "
            "kltune confirm judges each study's best on fresh seeds and test prompts, without that."
        )
    running = [side.label for side in found.sides if side.study.of_state(TrialState.RUNNING)]
    if running:
        texts.append(f"With trials that have not ended, so this may change: {', '.join(running)}.")
    return tuple(texts)
