"""A report as large and as hostile as asked, made up, out: every kind of block, charts, a sheet for each trial."""

from __future__ import annotations

import random

from kltune.report.document import (
    Bullets,
    Card,
    Cards,
    Chart,
    Code,
    Document,
    Facts,
    Figure,
    Figures,
    Grid,
    Hero,
    Paragraph,
    Section,
    Sheet,
    Tile,
)

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "<!-- <script>",
    "]]></style></title><svg onload=alert(3)>",
    "\"' onmouseover='alert(4)' `tick` | pipe ${alert(5)} {{7*7}}",
    "🥚 عشر دقائق \u202e drawkcab",
    "w" * 10_240,
    "nul \x00 bell \x07 escape \x1b[31m separator \u2028 surrogate \ud800",
    "&lt;b&gt; &amp; &#60;i&#62;",
)
HEADER = ("trial", "group", "setting", "value", "gold: peak ± s.e.", "KL (nats/sequence)", "state", "why it ended", "time")  # fmt: skip
STATES = ("complete", "pruned", "fail")
EVALS = tuple(range(0, 81, 10))
STEPS = tuple(range(1, 81))


def golds(number: int) -> list[float]:
    """Gold of each evaluation: up and, for small beta, down again; trial 3 is the best."""
    rng = random.Random(number)
    best = 1.0 if number == 3 else 0.3 + 0.5 * rng.random()
    return [round(best * (step / 80) ** 0.5, 4) for step in EVALS]


def frontier(count: int) -> Chart:
    """A line a trial, one after the other with a gap between, each point knowing its trial."""
    x: list[float | None] = []
    y: list[float | None] = []
    trial: list[int | None] = []
    for number in range(count):
        x += [*(round((step / 30) ** 0.5 * (1 + number / count), 4) for step in EVALS), None]
        y += [*golds(number), None]
        trial += [*([number] * len(EVALS)), None]
    many = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "trials",
        "x": x,
        "y": y,
        "customdata": trial,
        "hovertemplate": "trial %{customdata}<br>gold %{y}<extra></extra>",
        "line": {"color": "#010203", "width": 1},
        "marker": {"size": 7},
    }
    axes = {
        "xaxis": {"title": {"text": "√(KL in nats/sequence)"}},
        "yaxis": {"title": {"text": "gold (select prompts)"}},
    }
    return Chart((many,), {**axes, "height": 380})


def heat(text: str) -> Chart:
    """A heat map with a hostile word in its hover text, escaped as plotly.js asks."""
    word = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:200]
    trace = {"type": "heatmap", "z": [[0.1, 0.2], [0.3, None]], "text": [[word, word], [word, ""]], "texttemplate": "%{text}"}  # fmt: skip
    return Chart((trace,), {"xaxis": {"title": {"text": "step"}}})


def picture(width: int = 360, lines: int = 1) -> str:
    """A small drawing as kltune's own are."""
    paths = "".join(
        f'<path d="M {i % 90} 10 L {width - 20} {i % 180}" stroke="currentColor"/>'
        for i in range(lines)
    )
    return f'<svg viewBox="0 0 {width} 240"><g id="a">{paths}</g></svg>'


def sheet(number: int, text: str = "") -> Sheet:
    """What opens for one trial."""
    kls = [round(step / 20 + number / 100, 4) for step in STEPS]
    return Sheet(
        number=number,
        title=f"Trial {number}{': ' + text if text else ''}",
        facts=(
            ("setting", f"k2-loss 0.{number:03d} {text}"),
            ("how it ended", text or "80 of 80 steps"),
        ),
        curves={
            "eval_step": EVALS,
            "gold": golds(number),
            "gold_se": [0.02] * len(EVALS),
            "proxy": [round(2 * g, 4) for g in golds(number)],
            "proxy_se": [0.03] * len(EVALS),
            "eval_kl": [None, *kls[9::10]],
            "step": STEPS,
            "kl": kls,
            "beta": [0.02] * len(STEPS),
        },
        commands=(f"kltune replay studies/x --trial {number}",),
    )


def trial_row(number: int, text: str) -> tuple[str, ...]:
    state = STATES[number % 3] if number % 5 == 0 else STATES[0]
    gold = max(golds(number))
    return (
        str(number),
        str(number // 4 + 1),
        f"k2-loss {0.001 * (number + 1):.3g} {text[:40]}",
        f"{gold:.3f}" if state == "complete" else "–",
        f"{gold:.3f} ± 0.02",
        f"{number / 10:.1f}",
        state,
        text or "80 of 80 steps",
        "3 min 05 s" if number % 2 else "42 s",
    )


def report(count: int = 12, text: str = "", *, is_live: bool = False, lines: int = 1) -> Document:
    """A whole report of ``count`` trials; ``text`` stands wherever a model or a person may write."""
    said = text or "boil the eggs for eight minutes"
    hero = Hero(
        type_in=(
            ("penalty", "k2-loss"),
            ("beta", "0.02"),
            ("target KL", "0.1 nats per token"),
            ("stop", "step 50"),
        ),
        tiles=(
            Tile("Gold", "+0.62", "95 %: 0.51 to 0.73, corrected for the best of 12"),
            Tile("Gold before", "0.10"),
            Tile("KL at the stop", "3.1 nats/sequence", "0.21 nats/token, exact"),
            Tile("When to stop", "steps 40 to 60"),
            Tile("Against verl-ppo", "+0.11", "95 %: 0.02 to 0.20"),
            Tile("Cost", "2 h 10 min", "one CPU"),
        ),
        command="kltune export studies/x --to trl",
    )
    cards = tuple(
        Card(f"{name} (step {step})", said, f"gold {step / 50:.2f}, proxy 1.0", change)
        for name, step, change in (
            ("start", 0, ""),
            ("peak", 50, "since the start: gold +1.00"),
            ("end", 80, "since the peak: proxy +0.40, gold -1.20"),
        )
    )
    sections = (
        Section("The answer", "recommendation", (hero, Paragraph(said, "warning"))),
        Section("Details", "details", (Facts(((said, said),)), Bullets((said,)))),
        Section(
            "Gold against KL",
            "frontier",
            (Figures((Figure(picture(lines=lines), "Gold of every trial.", False, frontier(count)), Figure(picture(), "Where the KL lies.", False, heat(said)))),),
        ),
        Section("What the models wrote", "samples", (Cards(said, said, cards, said),)),
        Section(
            "All trials",
            "trials",
            (Grid(HEADER, tuple(trial_row(n, text) for n in range(count)), frozenset((3,)), frozenset((0, 1, 3, 4, 5, 8)), "trials"),),
        ),
        Section("How to repeat this", "provenance", (Code(said), Paragraph(said, "note"))),
    )  # fmt: skip
    return Document(
        title=f"kltune: {text or 'kitchen'}",
        subtitle=f"{count} of {count} trials",
        headline=f"Use k2-loss with beta 0.02. {text}",
        is_answer=True,
        sections=sections,
        sheets=tuple(sheet(n, text) for n in range(count)),
        is_live=is_live,
    )
