"""A confirmation in, what a person reads in the terminal out: every number with its unit."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kltune.confirm import words
from kltune.confirm.looks import times
from kltune.confirm.result import ConfirmResult, Judgement
from kltune.trial.words import MISSING, duration, number, score

_STYLE = {"stays": "bold green", "changes": "bold yellow", "tied": "bold"}


def confirm_table(result: ConfirmResult) -> Group:
    """The whole confirmation as a person reads it."""
    parts: list[RenderableType] = [
        Text(words.headline(result), style=_STYLE[result.main.verdict], overflow="fold"),
        Text(""),
    ]
    for judged in result.judgements:
        if len(result.judgements) > 1:
            parts.append(Text(f"Judged by {judged.gold}", style="bold"))
        if judged is not result.main:
            parts.append(Text(words.verdict_sentence(judged, "by this gold"), overflow="fold"))
        parts.append(_settings(result, judged))
        parts.append(Text(""))
    parts += [_facts(result), Text(""), Text(words.METHOD, style="dim", overflow="fold")]
    parts += [Text(f"note: {note}", style="yellow", overflow="fold") for note in result.notes]
    for gate in result.gates:
        style = "green" if gate.holds else "bold red"
        verb = "holds" if gate.holds else "does not hold"
        parts.append(
            Text(f"--require {gate.text!r} {verb}: {gate.why}", style=style, overflow="fold")
        )
    return Group(*parts)


def _settings(result: ConfirmResult, judged: Judgement) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    table.add_column("setting", overflow="fold", ratio=1)
    for name in ("stop", "gold", "KL/token", "recommended is above by", "seeds"):
        table.add_column(name, justify="right", no_wrap=True)
    differences = {a.arm: a for a in judged.against}
    for place in judged.places:
        arm, found = result.arms[place.arm], differences.get(place.arm)
        cells = (MISSING, "")
        if found is not None:
            mark = "*" if found.is_told_apart else " "
            cells = (
                f"{found.difference:+.2f} ({found.low:+.2f} to {found.high:+.2f}){mark}",
                f"{found.seeds_above}/{len(result.seeds)}",
            )
        table.add_row(
            Text(judged.names[place.arm], style="bold" if place.arm == judged.winner else ""),
            str(arm.stop),
            score(place.gold),
            number(arm.kl_token, 2),
            *cells,
        )
    return table


def _facts(result: ConfirmResult) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), expand=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold", ratio=1)
    table.add_row(
        "Reading",
        Text(
            "stop in steps; KL in nats/token at the stop; in brackets the 95 % interval; *: told apart from the "
            "recommended setting, the others can't be; seeds: in how many of them the recommended one is higher"
        ),
    )
    rows = [
        ("Best recipe", words.recipe_words(result)),
        ("Luck", words.luck_words(result)),
        ("Single seeds", words.seeds_words(result)),
        ("Could be seen", words.least_words(result)),
        ("KL", words.kl_words(result)),
        (
            "Test prompts",
            f"{result.num_prompts} x {result.samples} completions per setting and seed; looked at "
            f"{times(result.looks)} so far",
        ),
        ("Took", duration(result.seconds)),
    ]
    for label, text in rows:
        if text:
            table.add_row(label, Text(text))
    return table
