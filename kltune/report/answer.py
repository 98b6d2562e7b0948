"""The chosen trial in, the sentences of the recommendation out, every number with its unit."""

from __future__ import annotations

from kltune.report.choice import stop_point
from kltune.report.compare import Difference, value_words
from kltune.report.controller_blocks import judge, missed_words, verdict_words
from kltune.report.controller_rules import controller_words, reference_words, target_words
from kltune.report.controllers import INERT_BELOW
from kltune.report.golds import other_golds_words
from kltune.report.guards import guard_end, guard_end_short
from kltune.report.native import native_words
from kltune.report.noise_blocks import group_claim
from kltune.report.recommend import Recommendation, Versus
from kltune.report.rows import StudyRows, TrialRow
from kltune.report.start import against_start
from kltune.report.ties import only_words, tie_words
from kltune.spec.trial import ControllerKind
from kltune.trial.words import (
    MISSING,
    beta_unit_words,
    both_units,
    limit_words,
    number,
    origin_words,
    score,
    setting_long,
    setting_short,
)

Fact = tuple[str, str]


def headline(
    study: StudyRows,
    found: Recommendation,
    *,
    is_short: bool = False,
    is_confirmed: bool = False,
    kl: tuple[float, float] | None = None,
) -> str:
    """The answer in few sentences: what to use, what it is worth, what it is not told apart from.

    Before them the fact, where it is one, that training is not seen to do better than none.
    ``is_short``: only what to use, since a confirmation says the rest better; ``is_confirmed``: that
    compares with no training too, on fresh seeds; ``kl``: at the stop, in
    nats per token and per sequence, where the confirmation measured it. None: the search's.
    """
    setting, spec = found.best.setting, study.spec
    against = None if is_confirmed else against_start(study, found)
    use = "Use" if against is None or against.beats else "The least harmful setting tried was"
    if setting.beta == 0:
        words = f"{use} no KL penalty (beta = 0)"
    else:
        penalty = "" if setting.penalty is None else setting.penalty.value
        unit = beta_unit_words(spec.beta_unit, spec.trainer.credit, setting.penalty)
        words = f"{use} {penalty} with beta {number(setting.beta)} {unit}"
        words += _steering(study, found.best)
    peak = stop_point(study, found.best)
    words += f"; {_stop_short(study, found)}"
    if peak is not None:
        words += f", at KL {both_units(*(kl or (peak.kl_token, peak.kl_seq)))}"
    before = "" if against is None else against.words
    words = f"{before} {words}." if before else f"{words}."
    if is_short:
        return words
    parts = (words, _short_gold(study, found.best), tie_words(study, found))
    return " ".join(part for part in parts if part)


def _short_gold(study: StudyRows, row: TrialRow) -> str:
    """The value that the choice of the step does not flatter, with its interval."""
    interval = value_words(row, study.spec.objective, study.spec.kl_unit)
    shown = f" ({interval})" if interval else ""
    return f"On the select prompts, one seed: gold {score(row.value)}{shown}."


def _steering(study: StudyRows, row: TrialRow) -> str:
    kind = row.setting.controller
    if kind is ControllerKind.FIXED:
        return ", held fixed"
    if kind is ControllerKind.SCHEDULE:
        return ", on its schedule"
    how = kind.value
    if kind is ControllerKind.PROPORTIONAL:
        how = f"horizon {number(row.setting.horizon)} sequences"
    return f", steered to {target_words(study, row)} ({how}){_idle_words(row)}{missed_words(study, row)}"


def _idle_words(row: TrialRow) -> str:
    """A controller that did nothing is not what made the trial good."""
    moved = row.beta_range
    if moved is None or moved[1] >= INERT_BELOW * moved[0]:
        return ""
    if moved[0] == moved[1]:
        return " (which never moved it)"
    return " (which moved it by less than 10 %)"


def answer_facts(study: StudyRows, found: Recommendation) -> tuple[Fact, ...]:
    """What to type, when to stop, what it gives, and how sure that is."""
    row, spec = found.best, study.spec
    facts: list[Fact] = [
        (
            "Setting",
            f"trial {row.number} ({origin_words(row.origin)}): {setting_long(row.setting, spec.beta_unit, spec.kl_unit, spec.trainer.credit)}",
        ),
        ("In your framework", native_words(study, row)),
        ("Controller", controller_words(study, row) + _verdict(study, row)),
        ("Reference", reference_words(spec.trainer)),
        ("Stop", _stop_long(study, found)),
        ("Gold", _gold_words(study, row)),
    ]
    facts.append(("Other golds", other_golds_words(study, found)))
    facts.append(("How sure", sure_words(study, found)))
    if found.tied:
        facts.append(("Tied", _tied_words(study, found)))
    return tuple((label, text) for label, text in facts if text)


def _verdict(study: StudyRows, row: TrialRow) -> str:
    """Whether it did what it is for, as the section on controllers says."""
    found = judge(study, row)
    return "" if found is None else f"; verdict: {verdict_words(study, row, found)}"


def sure_words(study: StudyRows, found: Recommendation) -> str:
    """How far the answer can be trusted; what the interval leaves out is said here too."""
    return " ".join([*_rival_words(study, found), _seed_words(found)])


def _rival_words(study: StudyRows, found: Recommendation) -> list[str]:
    ranking, rival = found.ranking, found.runner_up
    if len(ranking.compared) + len(ranking.left_out) < 2:
        return [only_words(study)]
    texts: list[str] = []
    claim = group_claim(ranking)
    most = ranking.most_below_best(found.best)
    if found.tied:
        count, total = 1 + len(found.tied), len(ranking.compared)
        texts.append(f"{count} of {total} settings can't be told apart from the best {claim}.")
        if count == total == 2:
            difference = ranking.difference(found.best, (*found.tied, found.highest)[0])
            doubt = "" if difference is None else difference.doubt
            texts = [f"The two settings can't be told apart{doubt}."]
        if most is not None:
            texts.append(
                f"Whichever of them is, this one is at most {score(most)} gold below it (95 % confidence)."
            )
    elif rival is not None and rival.difference is not None:
        texts.append(f"It can be told apart from all others {claim}.")
    if rival is not None:
        texts.append(_nearest_words(study, rival))
    return texts


def _nearest_words(study: StudyRows, rival: Versus) -> str:
    name = f"trial {rival.row.number} ({setting_short(rival.row.setting, study.spec.kl_unit)})"
    if rival.difference is None:
        return (
            f"The next is {name}, value {score(rival.row.value)}; no paired prompts to compare by."
        )
    words = difference_words(rival.difference)
    return f"Of the settings that are told apart from the best the nearest is {name}: difference {words}."


def _seed_words(found: Recommendation) -> str:
    repeats = found.ranking.repeats
    if repeats is None:
        return "Every setting was trained once: the intervals hold the noise of prompts, not that of a fresh seed."
    return (
        f"The noise of a fresh seed is in the intervals, measured on one setting with {repeats.floor.num_seeds} seeds; "
        "every other setting was trained once."
    )


def difference_words(difference: Difference) -> str:
    """A difference in gold with its interval."""
    return (
        f"{difference.mean:+.3f} gold ({difference.interval}, "
        f"{difference.num_prompts} paired prompts)"
    )


def _stop_short(study: StudyRows, found: Recommendation) -> str:
    row, window = found.best, found.plateau
    if study.spec.objective.metric != "gold_peak":
        end = guard_end_short(row)
        return f"run {'' if end else 'all '}{row.steps_run} steps{end}"
    if window.first_step == window.last_step:
        return f"stop at step {window.first_step}"
    return f"stop between steps {window.first_step} and {window.last_step}"


def _stop_long(study: StudyRows, found: Recommendation) -> str:
    row, window, spec = found.best, found.plateau, study.spec
    if row.peak is None:
        return ""
    end = "" if not (words := guard_end(row)) else f"; {words}"
    at_peak = f"KL there is {both_units(row.peak.kl_token, row.peak.kl_seq)}"
    if spec.objective.metric != "gold_peak":
        return f"after all {row.steps_run} steps ({spec.objective.metric}); the highest gold after step 0 was at step {row.peak.step}; {at_peak}{end}"
    where = (
        f"at step {window.first_step}"
        if window.first_step == window.last_step
        else f"between steps {window.first_step} and {window.last_step}"
    )
    return f"{where} of {spec.trainer.steps} (gold there can't be told from the best); peak at step {row.peak.step}, {at_peak}{end}"


def _gold_words(study: StudyRows, row: TrialRow) -> str:
    start, peak, final = row.start, row.peak, row.final
    if peak is None or final is None:
        return ""
    words = f"{score(peak.gold, peak.gold_se)} (s.e. over prompts) at its peak, step {peak.step}"
    if start is not None:
        words += f"; {score(start.gold, start.gold_se)} before training"
    words += f"; {score(final.gold, final.gold_se)} at the end, step {final.step}"
    if study.spec.objective.metric == "gold_peak":
        return f"{words}. Corrected for having picked the best step: {score(row.value)}"
    return f"{words}. Value by {study.spec.objective.metric}: {score(row.value)}"


BASELINE_HEADER = (
    "recommended against",
    "trial",
    "its value",
    "difference (gold)",
    "95 % interval",
    "told apart",
    "within limits",
)


def baseline_cells(versus: Versus) -> tuple[str, ...]:
    """One baseline as a table row under BASELINE_HEADER."""
    row, difference = versus.row, versus.difference
    name = "beta = 0 (no penalty)" if row.origin == "zero" else origin_words(row.origin)
    limit = MISSING if row.is_feasible is None else ("yes" if row.is_feasible else "no")
    if row.value is None or difference is None:
        return (name, str(row.number), score(row.value), MISSING, MISSING, row.state.value, limit)
    return (
        name,
        str(row.number),
        score(row.value),
        f"{difference.mean:+.3f}",
        difference.no_interval or f"{difference.low:+.3f} to {difference.high:+.3f}",
        "yes" if difference.is_told_apart else "no",
        limit,
    )


def _tied_words(study: StudyRows, found: Recommendation) -> str:
    """Which settings may be the best, by the range of beta, and how the tie was broken."""
    group = (found.highest, *found.tied)
    betas = [row.setting.beta for row in group]
    numbers = ", ".join(str(row.number) for row in sorted(group, key=lambda t: t.number))
    penalties = [row.setting.penalty for row in group if row.setting.penalty is not None]
    unit = beta_unit_words(study.spec.beta_unit, study.spec.trainer.credit, *penalties)
    held = f"{found.plateau.width} of {found.plateau.total} evaluations, one after the other, within 1 s.e. of its peak and {limit_words(study.spec.objective)}"
    return (
        f"trials {numbers} can't be told apart {group_claim(found.ranking)}: beta from {number(min(betas))} to "
        f"{number(max(betas))} {unit}. Of those within 1 s.e. of the highest value, the one that holds its peak longest without a break is recommended: "
        f"trial {found.best.number}, {held}"
    )
