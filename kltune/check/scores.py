"""What the probes found of the scorers in; whether there is something to learn and to judge by out, as lines."""

from __future__ import annotations

from kltune.check import thresholds as limit
from kltune.check.result import Line
from kltune.grade import Grade
from kltune.statistics.single_precision import lost_in_single
from kltune.trainer.soundness.score_facts import ScorePair, ScorerFacts, ScoringFacts
from kltune.trial.words import duration, number

Found = tuple[Grade, str, str]
"""Grade, what was found, the remedy."""


def scorer_lines(found: ScoringFacts) -> tuple[Line, ...]:
    """The proxy, then gold with what the two have in common, then further golds."""
    pairs = {pair.gold: pair for pair in found.pairs}
    return (
        proxy_line(found.proxy),
        *(gold_line(gold, pairs.get(gold.field)) for gold in found.golds),
    )


def proxy_line(found: ScorerFacts) -> Line:
    """Whether the training reward is a number on the reference's completions and tells them apart."""
    grade, said, remedy = _fault(found) or _constant(found, Grade.FAIL) or _proxy(found)
    title = "the proxy scores and tells completions apart"
    return Line("proxy", title, grade, said, remedy, _numbers(found))


def _proxy(found: ScorerFacts) -> Found:
    shown = f"{found.name}: {_spread(found)}"
    lost = lost_scores(found)
    if lost is not None:
        said = f"{found.name}: {lost}."
        return Grade.FAIL, said, "Training computes in it: subtract a constant, or scale them."
    if found.unscored_frac > limit.UNSCORED_WARN:
        grade = Grade.FAIL if found.unscored_frac > limit.UNSCORED_FAIL else Grade.WARN
        said = f"{found.name} can't score {100 * found.unscored_frac:.0f} % of the completions."
        return grade, said, "What it can't score takes no part in training: score it low instead."
    constant = found.constant_group_frac or 0.0
    if constant > limit.CONSTANT_WARN:
        said = f"{shown}; {100 * constant:.0f} % of the prompts have one score for all their completions."
        remedy = "No gradient comes from them: larger groups, easier prompts, or a finer proxy."
        return Grade.WARN, said, remedy
    if found.repeats is False:
        said = f"{shown}; a second call differs by up to {number(found.repeat_gap)}."
        return (
            Grade.WARN,
            said,
            "A reward that is drawn anew can't be repeated: fix its seed or temperature.",
        )
    return _by_order(found, shown) or (Grade.PASS, f"{shown}.", "")


def lost_scores(found: ScorerFacts) -> str | None:
    """Why single precision, in which training computes, can't tell the scores apart; none where it can."""
    if found.mean is None or found.largest is None:
        return None
    return lost_in_single(found.mean, found.group_std or 0.0, found.largest)


def _by_order(found: ScorerFacts, shown: str) -> Found | None:
    """What stands beside a completion must not matter: neither is the same in a step and in an evaluation."""
    if not found.order_gap or found.order_gap <= limit.ORDER_GAP * (found.std or 0.0):
        return None
    said = (
        f"{shown}; the score depends on the list's order or on a completion's neighbours: reversed, and with a few more "
        f"behind, it differs by up to {number(found.order_gap)}, which is no noise (the same list gives the same)."
    )
    return Grade.WARN, said, "Judge each completion by itself."


def gold_line(found: ScorerFacts, pair: ScorePair | None) -> Line:
    """Whether gold is a judgement of its own: finite, not constant, and not the proxy."""
    grade, said, remedy = _fault(found) or _constant(found, Grade.WARN) or _gold(found, pair)
    numbers = {
        **_numbers(found),
        "identical_frac": None if pair is None else pair.identical_frac,
        "correlation": None if pair is None else pair.correlation,
        "group_correlation": None if pair is None else pair.group_correlation,
        "rank_correlation": None if pair is None else pair.rank_correlation,
    }
    name = found.field.removeprefix("task.")
    title = f"{name} judges, and is not the proxy"
    return Line("gold", title, grade, said, remedy, numbers)


def _gold(found: ScorerFacts, pair: ScorePair | None) -> Found:
    shown = f"{found.name}: {_spread(found)}"
    own = "Gold must be a judgement that training never sees: give another proxy, or proxy: {learned: {from: gold}}."
    if pair is not None and pair.identical_frac >= 1:
        said = f"{found.name} gives the proxy's score to all {pair.num_samples} completions."
        return Grade.FAIL, said, own
    if found.unscored_frac > 0:
        said = f"{found.name} can't score {100 * found.unscored_frac:.0f} % of the completions."
        return Grade.FAIL, said, "Gold must score every completion, empty and cut ones too."
    correlation = None if pair is None else pair.correlation
    if correlation is not None and abs(correlation) > limit.SAME_CORRELATION:
        said = f"{found.name} is the proxy in another unit (correlation {correlation:+.5f})."
        return Grade.FAIL, said, own
    by_rank = None if pair is None else _by_rank(found, pair)
    if by_rank is not None:
        return *by_rank, own
    by_order = _by_order(found, shown)
    if by_order is not None:
        return by_order
    if found.repeats is False:
        said = f"{shown}; a second call differs by up to {number(found.repeat_gap)}."
        return (
            Grade.WARN,
            said,
            "Judge at temperature 0, or take more evaluate.samples: its mood is noise.",
        )
    if correlation is not None and correlation < 0:
        said = f"{shown}; correlation with the proxy {correlation:+.2f}."
        return (
            Grade.WARN,
            said,
            "What the proxy rewards, gold dislikes from the start: is a sign turned round?",
        )
    related = "" if correlation is None else f"; correlation with the proxy {correlation:+.2f}"
    return Grade.PASS, f"{shown}{related}.", ""


def _by_rank(found: ScorerFacts, pair: ScorePair) -> tuple[Grade, str] | None:
    """Whether gold puts completions in the proxy's order, or nearly."""
    ranks = pair.rank_correlation
    if ranks is None or abs(ranks) <= limit.NEAR_RANKS:
        return None
    if abs(ranks) > limit.SAME_CORRELATION and pair.distinct >= limit.RANKS_DISTINCT:
        order = "as the proxy does" if ranks > 0 else "in the reverse of the proxy's order"
        said = f"{found.name} ranks every completion {order} ({pair.distinct} different scores)."
        return Grade.FAIL, said
    said = (
        f"{found.name} ranks completions nearly as the proxy does (rank correlation {ranks:+.3f})."
    )
    return Grade.WARN, said


def _fault(found: ScorerFacts) -> Found | None:
    """What makes any scorer useless."""
    if found.fault is None:
        return None
    remedy = (
        "Mend it where it raised, on whatever completion: empty, cut and strange ones come up too."
        if found.raised
        else "One finite number per completion is needed, in order."
    )
    return Grade.FAIL, f"{found.fault}.", remedy


def _constant(found: ScorerFacts, grade: Grade) -> Found | None:
    """One score for all: nothing to learn from; for gold it may still come."""
    if found.std:
        return None
    said = f"{found.name} gives {number(found.mean)} to all {found.num_samples} completions of the reference."
    remedy = (
        "There is nothing to learn: give a proxy that tells completions apart."
        if grade is Grade.FAIL
        else "It chooses nothing until training brings others: easier prompts, or a finer gold."
    )
    return grade, said, remedy


def _spread(found: ScorerFacts) -> str:
    took = f"{duration(found.seconds_per_call)} for {found.num_samples}"
    return (
        f"mean {number(found.mean)}, standard deviation {number(found.std)} over all and {number(found.group_std)} "
        f"within a prompt, {took}"
    )


def _numbers(found: ScorerFacts) -> dict[str, float | None]:
    return {
        "num_samples": float(found.num_samples),
        "unscored_frac": found.unscored_frac,
        "mean": found.mean,
        "std": found.std,
        "group_std": found.group_std,
        "constant_group_frac": found.constant_group_frac,
        "repeat_gap": found.repeat_gap,
        "seconds_per_call": found.seconds_per_call,
    }
