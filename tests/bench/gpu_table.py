"""Steps of contenders in, medians, ratios and a table out. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

PHASES = ("rollout_s", "reference_s", "update_s", "step_s")


def summary(steps: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Medians over the rounds, seconds of one trial-step; and the spread of whole steps."""
    found = {name: median(step[name] for step in steps) for name in PHASES}
    times = [step["step_s"] for step in steps]
    return {**found, "step_min_s": min(times), "step_max_s": max(times), "rounds": len(steps)}


def decode(row: Mapping[str, Any], slots: int, completions: int, tokens: int) -> dict[str, float]:
    """Of a summary: tokens per second of all slots together, and seconds per position of all of them."""
    return {
        "decode_tokens_per_s": completions * tokens / row["rollout_s"],
        "position_ms": 1e3 * row["rollout_s"] * slots / tokens,
    }


def ratios(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """How many times as fast each is than K = 1 and than the loop, per trial-step: whole, decode, update, reference."""
    found: dict[str, dict[str, float]] = {}
    for base, label in (("kltune K=1", "K=1"), ("HF generate loop", "HF loop")):
        for name, row in rows.items():
            if base in rows and name != base and name.startswith("kltune"):
                found[f"{name} vs {label}"] = {
                    phase.removesuffix("_s"): rows[base][phase] / row[phase]
                    for phase in PHASES
                    if row[phase] > 0
                }
    return found


def _cells(name: str, row: Mapping[str, Any]) -> list[str]:
    def number(key: str, form: str) -> str:
        return "-" if row.get(key) is None else format(row[key], form)

    seconds = [number(key, ".4g") for key in (*PHASES, "step_min_s", "step_max_s")]
    return [
        name,
        *seconds,
        number("decode_tokens_per_s", ".0f"),
        number("position_ms", ".3g"),
        number("decode_share", ".1%"),
        number("scoring_share", ".1%"),
        number("peak_gb", ".2f"),
        number("rounds", "d"),
    ]


HEADINGS = [
    "contender",
    "rollout s",
    "reference s",
    "update s",
    "step s",
    "min",
    "max",
    "tokens/s",
    "ms/position",
    "decode share",
    "scoring share",
    "peak GB",
    "rounds",
]


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """All of it, Markdown. Seconds are per trial-step."""
    lines = [HEADINGS, ["---"] * len(HEADINGS), *(_cells(n, r) for n, r in rows.items())]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    compared = ratios(rows)
    if compared:
        phases = ["step", "rollout", "reference", "update"]
        head = ["times as fast, per trial-step", *phases]
        body = [
            [name, *(f"{found[p]:.2f}" if p in found else "-" for p in phases)]
            for name, found in compared.items()
        ]
        lines = [head, ["---"] * len(head), *body]
        text += "\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return text + "\n"
