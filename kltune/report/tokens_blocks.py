"""The recommended and the most over-optimised trial in, where their KL lies as blocks of the report out."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from kltune.report.document import Block, Facts, Figure, Figures, Grid, Paragraph
from kltune.report.rows import TrialRow
from kltune.report.tokens import (
    TokenEvidence,
    densest,
    half_of_kl,
    places,
    read_tokens,
)
from kltune.report.tokens_figure import (
    FEWEST,
    curves_figure,
    heat_map,
    profile_figure,
)
from kltune.trial.words import number, score

_HEADER = (
    "evaluation",
    "prompt",
    "token of the completion",
    "text around ⟦the token⟧",
    "exact KL (nats)",
    "log p now",
    "log p at the start",
)
_NOTE = (
    "KL is exact throughout: KL(policy ‖ start) of the whole next-token distribution at a place. log p is that of the "
    "one token that was drawn. Outliers are the tokens with the largest KL among all completions of "
    "the evaluation. KL's share of the gradient: norm of the KL's own gradient over that plus the norm of the rest, "
    "measured in the step after each evaluation on its first micro-batch; a KL paid in the reward counts by the part of the "
    "advantages it makes. On policy the policy loss is near 0 whatever its gradient is, so the KL's share of the "
    "loss says little: look at the gradient."
)
_ABSENT = "Where in the completions the KL lies was not recorded: the study is of an older kltune, or no step was done."
_OUTLIER_FIELDS = (
    "prompt_id",
    "position",
    "token",
    "before",
    "after",
    "kl",
    "policy_logprob",
    "reference_logprob",
)
_LONGEST = 60
"""Characters of text on either side of an outlier."""


def token_blocks(best: TrialRow | None, worst: TrialRow | None) -> tuple[Block, ...]:
    """Empty where neither trial exists; one line where the record says nothing."""
    chosen: dict[int, tuple[str, TrialRow]] = {}
    for title, row in (("Recommended", best), ("Most over-optimised", worst)):
        if row is not None and row.number not in chosen:
            chosen[row.number] = (f"{title}: trial {row.number}", row)
    if not chosen:
        return ()
    found = [(title, read_tokens(row)) for title, row in chosen.values()]
    if all(evidence.is_empty for _, evidence in found):
        return (Paragraph(_ABSENT, "note"),)
    blocks: list[Block] = []
    for title, evidence in found:
        blocks += _trial_blocks(title, evidence)
    blocks.append(Paragraph(_NOTE, "note"))
    return tuple(blocks)


def token_facts(best: TrialRow | None, worst: TrialRow | None) -> list[dict[str, Any]]:
    """The same for report.json: KL in nats per token, positions in tokens."""
    rows = {row.number: row for row in (best, worst) if row is not None}
    found = (read_tokens(row) for row in rows.values())
    return [
        {
            "trial": evidence.row.number,
            "profiles": [
                {
                    "moment": moment.name,
                    "first_step": moment.first_step,
                    "last_step": moment.last_step,
                    "edges": moment.profile.edges,
                    "kl_token": moment.profile.kl,
                    "tokens": moment.profile.tokens,
                }
                for moment in evidence.moments()
            ],
            "grad_kl_share": evidence.grad_share,
            "kl_proxy_corr": evidence.proxy_correlation,
            "kl_gold_corr": evidence.gold_correlation,
            "outliers": [
                {"step": step, **{name: row.get(name) for name in _OUTLIER_FIELDS}}
                for _, step, rows in evidence.outliers()
                for row in rows
            ],
        }
        for evidence in found
        if not evidence.is_empty
    ]


def _trial_blocks(title: str, evidence: TokenEvidence) -> list[Block]:
    if evidence.is_empty:
        return [Paragraph(f"{title}. {_ABSENT}", "note")]
    figures: list[Figure | None] = [
        heat_map(evidence, title),
        profile_figure(evidence.moments(), title),
        curves_figure(evidence, title),
    ]
    blocks: list[Block] = [
        Facts((("trial", title), *_facts(evidence))),
        Figures(tuple(figure for figure in figures if figure is not None)),
    ]
    listed = _outliers(evidence)
    if listed:
        blocks.append(Grid(_HEADER, listed, numeric=frozenset((2, 4, 5, 6))))
    return blocks


def _facts(evidence: TokenEvidence) -> tuple[tuple[str, str], ...]:
    found = [
        ("by position", _positions(evidence)),
        ("by token", _spread(evidence)),
        ("score and KL", _correlations(evidence)),
        ("KL in the gradient", _shares(evidence)),
    ]
    return tuple((name, words) for name, words in found if words)


def _positions(evidence: TokenEvidence) -> str:
    """Where the end's KL lies, in words."""
    last = evidence.moments()[-1]
    half, bucket = half_of_kl(last.profile), densest(last.profile, FEWEST)
    if half is None or bucket is None:
        return f"no KL at the {last.words}"
    edge, share = half
    first = "the first token holds" if edge == 1 else f"the first {edge} tokens hold"
    return (
        f"{last.words}: {first} half of the KL ({100 * share:.0f} % of all tokens stand there); "
        f"densest at {places(last.profile, bucket)} with {number(last.profile.kl[bucket])} nats/token"
    )


def _spread(evidence: TokenEvidence) -> str:
    """The last step's quantiles."""
    last = {name: points[-1] for name, points in evidence.quantiles.items() if points}
    if not {"p50", "p99", "max", "mean"} <= last.keys():
        return ""
    step, mean = last["mean"]
    return (
        f"step {step}: median {number(last['p50'][1])}, 99 % quantile {number(last['p99'][1])}, largest "
        f"{number(last['max'][1])} nats, mean {number(mean)} nats/token"
    )


def _correlations(evidence: TokenEvidence) -> str:
    parts = [
        f"{name} {score(points[-1][1])} (evaluation at step {points[-1][0]})"
        for name, points in (
            ("KL and proxy", evidence.proxy_correlation),
            ("KL and gold", evidence.gold_correlation),
        )
        if points
    ]
    if evidence.step_correlation:
        mean = fmean(value for _, value in evidence.step_correlation)
        parts.append(f"KL and proxy in the rollouts {score(mean)} (mean over the steps)")
    return "correlation over completions: " + ", ".join(parts) if parts else ""


def _shares(evidence: TokenEvidence) -> str:
    points = evidence.grad_share
    if not points:
        return ""
    if evidence.row.setting.penalty is None:
        return "none: beta is 0"
    highest = max(points, key=lambda point: point[1])
    last = points[-1]
    return f"highest {100 * highest[1]:.0f} % (step {highest[0]}), last {100 * last[1]:.0f} % (step {last[0]})"


def _outliers(evidence: TokenEvidence) -> tuple[tuple[str, ...], ...]:
    return tuple(
        _cells(f"{name} (step {step})", row)
        for name, step, rows in evidence.outliers()
        for row in rows
    )


def _cells(title: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    before, after = _line(row.get("before")), _line(row.get("after"))
    before = before if len(before) <= _LONGEST else f"…{before[-_LONGEST:]}"
    after = after if len(after) <= _LONGEST else f"{after[:_LONGEST]}…"
    return (
        title,
        str(row.get("prompt_id", "")),
        str(row.get("position", "")),
        f"{before}⟦{_line(row.get('token'))}⟧{after}",
        number(row.get("kl")),
        number(row.get("policy_logprob")),
        number(row.get("reference_logprob")),
    )


def _line(text: object) -> str:
    """Text on one line; where it breaks, a sign of it."""
    return str(text or "").replace("\r\n", "\n").replace("\n", "⏎")
