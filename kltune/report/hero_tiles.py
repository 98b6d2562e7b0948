"""A chosen setting in, the numbers of the first screen out: each with its interval, unit or basis, from the record only."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kltune.confirm.result import ConfirmResult, Place
from kltune.report.choice import Choice, is_judged_by_peak, stop_point
from kltune.report.compare import interval_words, start_words, value_words
from kltune.report.document import Tile
from kltune.report.guards import guard_end_short
from kltune.report.noise_blocks import group_claim
from kltune.report.peaks import trial_peak
from kltune.report.reckon import account
from kltune.report.recommend import Recommendation, Versus
from kltune.report.rows import Checkpoint, StudyRows, TrialRow
from kltune.report.ties import is_compared, only_words
from kltune.spec.trial import KLUnit
from kltune.trial.words import (
    KL_UNIT,
    count_words,
    duration,
    number,
    origin_words,
    score,
    setting_short,
)


def tiles(study: StudyRows, choice: Choice) -> tuple[Tile, ...]:
    """Gold, before, KL, stop, how sure, against baselines, cost; what is not on record has no tile."""
    return tuple(_tiles(study, choice))


def _tiles(study: StudyRows, choice: Choice) -> Iterator[Tile]:
    result = choice.confirmation
    if result is None:
        yield _gold(study, choice.row)
        yield from _before(choice.row)
        yield from _kl(study, choice)
    else:
        place = _place(result, choice.arm)
        basis = f"on {len(result.seeds)} fresh seeds and {result.num_prompts} test prompts"
        yield Tile("Expected gold, confirmed", score(place.gold), f"{_interval(place)} {basis}")
        yield from _before_confirmed(result)
        yield _kl_confirmed(study, result, choice.arm)
    yield _stop(study, choice)
    yield _sure(study, choice.found) if result is None else _sure_confirmed(result, choice)
    yield from _baseline(study, choice)
    yield _cost(study, choice.confirmation)


def _gold(study: StudyRows, row: TrialRow) -> Tile:
    """The value that the search maximised: of a peak, that which the choice of the step does not flatter."""
    basis = "on the select prompts, one seed"
    if is_judged_by_peak(study):
        basis += "; corrected for having picked the step"
    if len(study.trials) > 1:
        basis += f"; not corrected for choosing among {len(study.trials)} trials"
    interval = value_words(row, study.spec.objective, study.spec.kl_unit)
    return Tile("Expected gold, not confirmed", score(row.value), _around(interval, basis))


def _around(interval: str, basis: str) -> str:
    return f"{interval}, {basis}" if interval else f"no interval is on record; {basis}"


def _before(row: TrialRow) -> Iterator[Tile]:
    if row.start is not None and math.isfinite(row.start.gold):
        note = _around(start_words(row.start), "on the same prompts")
        yield Tile("Gold before training", score(row.start.gold), note)


def _before_confirmed(result: ConfirmResult) -> Iterator[Tile]:
    place = next((p for p in result.main.places if result.arms[p.arm].role == "start"), None)
    if place is not None:
        note = f"{_interval(place)} on the same test prompts"
        yield Tile("Gold before training", score(place.gold), note)


def _place(result: ConfirmResult, arm: int) -> Place:
    return next(place for place in result.main.places if place.arm == arm)


def _interval(found: Place) -> str:
    return interval_words(found.low, found.high)


def _kl(study: StudyRows, choice: Choice) -> Iterator[Tile]:
    point = stop_point(study, choice.row)
    if point is None:
        return
    value, other = _kl_words(study, point.kl_token, point.kl_seq)
    note = f"{other}; exact, on the select prompts{_kl_range(study, choice)}"
    yield Tile("KL at the stop", value, note)


def _kl_words(study: StudyRows, kl_token: float, kl_seq: float) -> tuple[str, str]:
    """The study's own unit first."""
    words = (
        f"{number(kl_token)} nats/token",
        f"{number(kl_seq)} nats/sequence",
    )
    own, other = words if study.spec.kl_unit is KLUnit.TOKEN else words[::-1]
    return own, f"= {other}"


def _kl_range(study: StudyRows, choice: Choice) -> str:
    """Over the evaluations in the window to stop in."""
    unit = study.spec.kl_unit

    def is_inside(point: Checkpoint) -> bool:
        return choice.first_step <= point.step <= choice.last_step

    inside = [c.kl(unit) for c in choice.row.checkpoints if is_inside(c)]
    finite = [kl for kl in inside if math.isfinite(kl)]
    if len(finite) < 2:
        return ""
    words = f"{number(min(finite))} to {number(max(finite))} {KL_UNIT[unit]}"
    return f"; {words} over steps {choice.first_step} to {choice.last_step}"


def _kl_confirmed(study: StudyRows, result: ConfirmResult, arm: int) -> Tile:
    facts = result.arms[arm]
    value, other = _kl_words(study, facts.kl_token, facts.kl_seq)
    by_seed = [kl for kl in facts.kl_token_by_seed if math.isfinite(kl)]
    spread = ""
    if len(by_seed) > 1:
        spread = f"; {number(min(by_seed))} to {number(max(by_seed))} nats/token from seed to seed"
    note = f"{other}; exact, on the test prompts at step {facts.stop}{spread}"
    return Tile("KL at the stop", value, note)


def _stop(study: StudyRows, choice: Choice) -> Tile:
    row, total = choice.row, study.spec.trainer.steps
    if not is_judged_by_peak(study):
        note = (
            f"of {total}; trials are judged by {study.spec.objective.metric}{guard_end_short(row)}"
        )
        return Tile("Stop", f"step {choice.last_step}", note)
    where = f"step {choice.first_step}"
    if choice.first_step != choice.last_step:
        where = f"steps {choice.first_step} to {choice.last_step}"
    note = f"of {total}"
    if row.peak is not None:
        is_below = row.start is not None and row.start.gold >= row.peak.gold
        note += f"; gold is highest{' after step 0' if is_below else ''} at step {row.peak.step}"
        if choice.first_step != choice.last_step:
            note += ", and the rest of these can't be told from it"
    note += _earlier(study, choice)
    if choice.last_step == total:
        note += f". Step {total} is the last that ran: gold may still hold or rise beyond"
    end = guard_end_short(row)
    return Tile("Stop", where, f"{note}; it ran to step {row.steps_run}{end}" if end else note)


def _earlier(study: StudyRows, choice: Choice) -> str:
    """The first step before the window that can't be told from the peak either: it costs less."""
    found = trial_peak(study, choice.row)
    before = () if found is None else found.peak.apart
    if not before or before[0] >= choice.first_step:
        return ""
    share = 100 * before[0] / choice.first_step
    return f". Step {before[0]} can't be told from it either, at {share:.0f} % of the steps"


def _sure(study: StudyRows, found: Recommendation) -> Tile:
    ranking, claim = found.ranking, group_claim(found.ranking)
    total = len(ranking.compared)
    if total + len(ranking.left_out) < 2:
        return Tile("How sure", "nothing to compare", only_words(study)[:-1])
    if not found.tied:
        if not is_compared(found):
            return Tile("How sure", "can't be told", "scores by prompt are not on record")
        return Tile("How sure", "told apart from all", f"{total - 1} other settings {claim}")
    note = f"{1 + len(found.tied)} of {total} settings can't be told apart {claim}"
    most = ranking.most_below_best(found.best)
    if most is not None:
        note += f"; taking this one costs at most {score(most)} gold (95 %)"
    return Tile("How sure", _tied(len(found.tied)), note)


def _tied(count: int) -> str:
    return f"tied with {count} other{'s' * (count != 1)}"


def _sure_confirmed(result: ConfirmResult, choice: Choice) -> Tile:
    judged = result.main
    others = [a for a in judged.against if a.role != "start"]
    basis = f"on {len(result.seeds)} fresh seeds and {result.num_prompts} test prompts"
    if choice.is_changed:
        note = f"{basis} it is above trial {choice.found.best.number}, which the search chose"
        return Tile("How sure", "the winner changed", note)
    if judged.verdict == "stays":
        return Tile("How sure", f"better than all {len(others)}", f"other settings, {basis}")
    tied = sum(not a.is_told_apart for a in others)
    note = (
        f"of {len(others)} other settings {basis}; a true difference of {score(judged.least_detectable)} gold would be "
        "seen 8 times in 10"
    )
    return Tile("How sure", _tied(tied), note)


def _baseline(study: StudyRows, choice: Choice) -> Iterator[Tile]:
    """Against the best of the known recipes and beta = 0; the confirmation's where there is one."""
    result = choice.confirmation
    if result is not None:
        best = None if choice.is_changed else result.main.best_baseline
        if best is not None:
            apart = "told apart" if best.is_told_apart else "can't be told apart"
            interval = f"95 % interval {best.low:+.3f} to {best.high:+.3f}"
            note = f"{interval}, {apart}; the best is {result.main.names[best.arm]}"
            yield Tile("Against the best baseline", f"{best.difference:+.3f} gold", note)
        return
    versus = best_baseline(choice.found)
    if versus is None or versus.difference is None:
        return
    difference = versus.difference
    apart = "told apart" if difference.is_told_apart else "can't be told apart"
    name = setting_short(versus.row.setting, study.spec.kl_unit)
    if versus.row.origin != "zero":
        name = f"{origin_words(versus.row.origin)}, {name}"
    note = f"{difference.interval}, {apart}; the best is trial {versus.row.number} ({name})"
    if versus.row.is_feasible is False:
        note += ", which breaks a limit"
    yield Tile("Against the best baseline", f"{difference.mean:+.3f} gold", note)


def best_baseline(found: Recommendation) -> Versus | None:
    """The highest value among those within the limits, else among all; none where none can be compared."""
    known = [v for v in found.baselines if v.row.value is not None and v.difference is not None]
    feasible = [v for v in known if v.row.is_feasible]
    return max(
        feasible or known,
        key=lambda v: (-math.inf if v.row.value is None else v.row.value, -v.row.number),
        default=None,
    )


def _cost(study: StudyRows, result: ConfirmResult | None) -> Tile:
    """The search, and what a confirmation took on top."""
    found = account(study)
    steps, time, bill = found.steps, found.time, found.bill
    value = duration(time.busy_s) if time.wall_s is None else duration(time.wall_s)
    parts = ["of workers' time so far" if time.wall_s is None else "wall time"]
    if time.wall_s is not None and not time.is_whole:
        parts.append(f"the steps on record took {duration(time.busy_s)} of workers")
    parts.append(
        f"{count_words(len(study.trials), 'trial')}, {count_words(steps.run, 'trial-step')}"
    )
    if steps.planned and steps.spared:
        share = 100 * steps.spared / steps.planned
        parts.append(f"{share:.0f} % of those planned were spared by pruning and guards")
    if bill is not None and bill.money is not None:
        parts.append(f"{number(bill.money)} {bill.currency}")
    if bill is not None and bill.energy_kwh is not None:
        parts.append(f"{number(bill.energy_kwh)} kWh")
    if result is None:
        return Tile("What the search cost", value, "; ".join(parts))
    search_s = time.busy_s if time.wall_s is None else time.wall_s
    parts.insert(
        0,
        f"{value} for the search, {duration(result.seconds)} for the last call of kltune confirm. The search",
    )
    return Tile("What it cost", duration(search_s + result.seconds), _joined(parts))


def _joined(parts: list[str]) -> str:
    return f"{parts[0]}: {'; '.join(parts[1:])}"
