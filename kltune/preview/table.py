"""A forecast in, what a person reads in the terminal out: every number with its unit."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kltune.preview.result import Curve, Ends, Forecast, Interval, Point, Suggestion, Verdict
from kltune.preview.words import (
    CURVE_NAME,
    cut_words,
    headline,
    needed_words,
    sentences,
    span,
)
from kltune.trial.words import MISSING, duration, number

_STYLES = {
    Verdict.TURNS: "bold yellow",
    Verdict.RISES: "bold green",
    Verdict.FALLS: "bold red",
    Verdict.UNCLEAR: "bold",
}
_SHOWN = 9
"""Rows of a curve in the terminal; preview.json has all of them."""


def preview_table(forecast: Forecast) -> Group:
    """The whole forecast as a person reads it."""
    parts: list[RenderableType] = [
        _facts(forecast),
        Text(f"\n{headline(forecast)}", style=_STYLES[forecast.reading.verdict]),
    ]
    parts += [Text(text) for text in sentences(forecast)]
    for curve in forecast.curves:
        name = CURVE_NAME[curve.kind]
        parts.append(Text(f"\n{name[0].upper()}{name[1:]}", style="bold"))
        parts.append(_points(curve))
        parts += [Text(text, style="dim") for text in (_footnote(curve), cut_words(curve)) if text]
    parts.append(Text("\nSuggested search", style="bold"))
    parts += _suggestion(forecast.suggestion)
    if forecast.needed:
        parts.append(Text("\nWhat would show more (extrapolated)", style="bold"))
        parts += [Text(f"  {text}") for text in needed_words(forecast)]
    parts += [Text(f"note: {note}", style="yellow") for note in forecast.notes]
    return Group(*parts)


def _facts(forecast: Forecast) -> Table:
    subject = forecast.subject
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), expand=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold", ratio=1)
    table.add_row("Forecast for", Text(f"{subject.name}, no training; model {subject.model}"))
    table.add_row(
        "Samples",
        Text(
            f"{subject.num_samples} completions of the reference for each of {subject.num_prompts} {subject.split} prompts "
            f"(the test prompts stay untouched); {subject.mean_tokens:.1f} tokens each on average, at most "
            f"{subject.max_new_tokens}; temperature {subject.temperature:g}, seed {subject.seed}"
        ),
    )
    if subject.policies:
        trained = ", ".join(subject.policies)
        table.add_row(
            "Weighed in",
            Text(f"{subject.samples_per_policy} completions per prompt of each of: {trained}"),
        )
    table.add_row(
        "sigma_R here",
        Text(
            f"{number(forecast.sigma_r.value)} ({span(forecast.sigma_r)}): spread of the proxy within a prompt, raw reward"
        ),
    )
    if forecast.train is not None:
        train = forecast.train
        table.add_row(
            "on train prompts",
            Text(
                f"{number(train.sigma_r.value)} ({span(train.sigma_r)}), over {train.num_prompts} prompts x "
                f"{train.num_samples}; a sweep's sigma_R is of such"
            ),
        )
    table.add_row("Took", Text(duration(forecast.seconds)))
    return table


def _points(curve: Curve) -> Table:
    is_tilt = curve.kind == "tilt"
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    names = ["beta", "KL/seq.", "KL/token"] if is_tilt else ["n", "KL/seq. ≤", "KL/token ≤"]
    names += ["proxy", "gold", "eff." if is_tilt else "KL, ties"]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for point in _thinned(curve.points):
        table.add_row(
            _knob(point, is_tilt=is_tilt),
            number(point.kl_seq, 3),
            number(point.kl_token, 2),
            _with_span(point.proxy),
            _with_span(point.gold),
            number(point.effective, 2) if is_tilt else number(point.tied_kl_seq, 3),
        )
    return table


def _thinned(points: tuple[Point, ...]) -> list[Point]:
    """Evenly spread over the rows, the first and the last among them."""
    if len(points) <= _SHOWN:
        return list(points)
    return [points[round(i * (len(points) - 1) / (_SHOWN - 1))] for i in range(_SHOWN)]


def _knob(point: Point, *, is_tilt: bool) -> str:
    if point.knob is None:
        return "none"
    return number(point.knob, 3) if is_tilt else f"{point.knob:.0f}"


def _with_span(interval: Interval) -> str:
    low = MISSING if interval.low is None else f"{interval.low:.2f}"
    high = MISSING if interval.high is None else f"{interval.high:.2f}"
    return f"{interval.value:.2f} [{low}, {high}]"


def _footnote(curve: Curve) -> str:
    if curve.kind == "tilt":
        return (
            "beta in reward per nat of sequence KL (none: the reference); KL in nats, by weighted completions, up to a tenth too "
            "low near the end; [95 % interval over prompts]; eff.: effective samples that nine prompts in ten have at least"
        )
    return (
        "KL in nats: the upper bound log n − (n − 1)/n; with ties counted it is smaller (that column is too low where n nears "
        "the number of completions)"
    )


def _suggestion(suggestion: Suggestion) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if suggestion.beta is not None:
        lines.append(
            Text(f"  beta:      {_range(suggestion.beta)}   reward per nat of sequence KL")
        )
    if suggestion.target_kl is not None:
        lines.append(
            Text(f"  target_kl: {_range(suggestion.target_kl)}   nats/{suggestion.kl_unit}")
        )
    return lines + [Text(f"  {reason}", style="dim") for reason in suggestion.reasons]


def _range(ends: Ends) -> str:
    low, high = ends
    if low is None or high is None:
        return f"from {low:g} up" if high is None else f"up to {high:g}"
    return f"{{log: [{low:g}, {high:g}]}}"
