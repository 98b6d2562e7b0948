"""What `explain controller` computed in, its screen out."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from kltune.explain import page
from kltune.explain.controller import ControllerFacts, ControllerQuestion, Liveliness
from kltune.explain.page import short


def controller_screen(facts: ControllerFacts, question: ControllerQuestion) -> Group:
    """The proportional controller with a person's numbers, and the threshold rules beside it."""
    unit = f"nats/{facts.unit}"
    return page.stack(
        page.title("The proportional controller: beta follows KL towards a target"),
        page.prose(
            f"error = clip(KL / target - 1, ±{facts.clip:g})   beta ← beta × (1 + error × n / horizon)"
        ),
        page.facts(
            [
                ("verdict", _verdict(facts, question)),
                *_course(facts, question),
                (
                    "unit",
                    f"{short(facts.target)} {unit} is {short(facts.target_other_unit)} nats/{facts.other_unit} at "
                    f"{short(question.tokens)} tokens. Ziegler and TRL up to 0.11 feed nats per sequence, verl and "
                    "OpenRLHF per token: a target in the wrong one pins the error at the clip for good.",
                ),
            ]
        ),
        *_speeds(facts, question),
        *_thresholds(facts),
    )


def _course(facts: ControllerFacts, question: ControllerQuestion) -> list[tuple[str, str]]:
    """The step and the run; nothing where there is none to speak of."""
    if facts.factor is None:
        return []
    step = (
        f"KL {short(facts.kl)} against target {short(facts.target)} nats/{facts.unit}: KL / target - 1 = "
        f"{short(facts.raw_error)}, clipped to {short(facts.error)}; n / horizon = {question.rows:,} / "
        f"{short(question.horizon)} = {short(facts.gain)}. beta {short(facts.beta)} × "
        f"{facts.factor:.6g} = {short(facts.beta_next, 6)}."
    )
    run = (
        f"beta stays between {short(facts.least)} and {short(facts.most)} in {question.steps:,} steps of "
        f"{question.rows:,} completions, whatever KL does. Doubling takes about {_steps(facts.steps_to_double)} "
        "at full error."
    )
    if facts.liveliness is Liveliness.STUCK:
        run = "beta stays 0, whatever KL does. Start from a beta above 0."
    return [("this step", step), ("the run", run)]


def _verdict(facts: ControllerFacts, question: ControllerQuestion) -> Text:
    bound = f"horizon {short(facts.live_horizon)}"
    if facts.liveliness is Liveliness.BROKEN:
        return page.bad(
            f"BROKEN: at horizon {short(facts.shortest_horizon)} ({facts.clip:g} × n) and below, a step at KL 0 "
            f"takes beta to 0 or below (n / horizon is {short(facts.gain)}). A sweep refuses it."
        )
    if facts.liveliness is Liveliness.STUCK:
        return page.bad("STUCK: beta 0 times anything is 0.")
    if facts.liveliness is Liveliness.INERT and facts.most is not None:
        rise = 100 * (facts.most / facts.beta - 1)
        return page.bad(
            f"INERT: it can raise beta by {rise:.1f} % at most in {question.steps:,} steps, so beta is fixed in "
            f"all but name. For 10 %: {bound} or less."
        )
    if facts.liveliness is Liveliness.FAST:
        return page.doubtful(
            f"FAST: n / horizon is {short(facts.gain)}. A step moves beta by more than KL is off; KL answers over "
            f"several steps, so beta overshoots and KL swings. From horizon {question.rows:,} on it does not."
        )
    return page.good(f"LIVE: beta can move by 10 % and more within the run (up to {bound}).")


def _speeds(facts: ControllerFacts, question: ControllerQuestion) -> tuple[Text, page.Columns]:
    rows = [
        (
            page.good(short(s.horizon)) if s.is_asked else short(s.horizon),
            short(s.gain),
            page.ABSENT if s.factor is None else f"{s.factor:.4f}",
            page.ABSENT if s.steps_to_double is None else f"{s.steps_to_double:,}",
            page.ABSENT if s.most_in_run is None else f"× {short(s.most_in_run)}",
            "yours" if s.is_asked else "",
        )
        for s in facts.speeds
    ]
    heads = [
        "horizon",
        "n / horizon",
        "a step, at most",
        "steps to double",
        f"{question.steps:,} steps",
        "<",
    ]
    note = f"at n = {question.rows:,}; to move it to another n, keep n / horizon"
    if facts.liveliness is Liveliness.STUCK:
        note += "; for a beta above 0"
    return page.heading("How fast a horizon is", note), page.columns(heads, rows)


def _thresholds(facts: ControllerFacts) -> tuple[Text, page.Columns]:
    rows = [
        (
            t.name,
            f"{short(t.below)} to {short(t.above)}",
            f"{t.every}",
            f"{short(t.up)}, {short(t.down)}",
            short(t.factor_now),
            f"{short(t.least_in_run, 2)} to {short(t.most_in_run, 2)}",
        )
        for t in facts.thresholds
    ]
    heads = ["", "× target", "every", "× outside", "× now", "× in the run"]
    note = "beta takes the 1st factor above the band, the 2nd below it"
    return page.heading("Threshold rules", note), page.columns(heads, rows)


def _steps(count: int | None) -> str:
    return "infinitely many steps" if count is None else f"{count:,} steps"
