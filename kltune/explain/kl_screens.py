"""What `explain kl` computed in, its two screens out: the worked example, and the reading of a mean."""

from __future__ import annotations

import math
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kltune.explain import page
from kltune.explain.estimators_screen import support_note
from kltune.explain.kl import MOVED, ODDS, RARE, KLFacts
from kltune.explain.mean import CHANCE, DIVERGED, MeanFacts, Reading
from kltune.explain.page import nats, short

_SHOWN: Final = 6
"""Answers that the table shows of a long distribution."""


def kl_screen(facts: KLFacts, *, is_example: bool) -> Group:
    """Two distributions and their KL."""
    title = "KL: how far a policy has moved from its reference"
    if is_example:
        title += " (five answers to a question)"
    return page.stack(
        page.title(title),
        _answers(facts),
        page.facts(_meanings(facts)),
        *(_prices(facts) if facts.moves else ()),
        *(_samples(facts) if facts.samples else ()),
    )


def _answers(facts: KLFacts) -> page.Columns:
    largest = sorted(facts.answers, key=lambda a: -abs(a.contribution))[:_SHOWN]
    shown = [answer for answer in facts.answers if answer in largest][:_SHOWN]
    rows = [
        (a.name, nats(a.reference), nats(a.policy), nats(a.log_ratio), nats(a.contribution))
        for a in shown
    ]
    if len(shown) < len(facts.answers):
        rest = len(facts.answers) - len(shown)
        others = math.fsum(a.contribution for a in facts.answers if a not in shown)
        rows.append((f"and {rest} more", "", "", "", nats(others)))
    rows.append(("sum = KL(policy ‖ reference)", "", "", "", nats(facts.kl)))
    return page.columns(["answer", "reference q", "policy p", "log p/q", "p × log p/q"], rows)


def _meanings(facts: KLFacts) -> list[tuple[str, str | Text]]:
    if not math.isfinite(facts.kl):
        names = _listed([a.name for a in facts.answers if a.contribution == math.inf])
        text = (
            f"infinite: the policy gives {names}, the reference never does (probability 0). No penalty "
            "can be computed from such an answer, and one of them convinces a reader for certain."
        )
        return [
            ("KL", page.bad(text)),
            ("other way", f"KL(reference ‖ policy) = {nats(facts.kl_other_way)} nats"),
        ]
    lost = [a.name for a in facts.answers if a.policy == 0 and a.reference > 0]
    other = f"KL(reference ‖ policy) = {nats(facts.kl_other_way)} nats: the other direction, another number."
    if lost:
        other += f" The policy lost {_listed(lost)}: no term of the first, infinite in this one."
    else:
        other += " To lose an answer costs little in the first, without limit in this one."
    evidence = "none: the two are equal."
    if facts.answers_for_odds is not None:
        evidence = (
            f"each answer is worth {nats(facts.kl)} nats of evidence that policy, not reference, wrote it: "
            f"odds of {facts.odds:g} to 1 take log {facts.odds:g} / {nats(facts.kl)} = "
            f"{facts.answers_for_odds:,} answers."
        )
    return [
        (
            "KL",
            f"{nats(facts.kl)} nats = {nats(facts.kl_bits)} bits: the mean of log p/q over the policy's own "
            f"answers. {short(100 * facts.negative_share)} % of them have a negative log p/q; the mean never is.",
        ),
        ("other way", other),
        ("evidence", evidence),
    ]


def _listed(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _prices(facts: KLFacts) -> tuple[Text, page.Columns]:
    first = facts.moves[0]
    rows = [
        (
            f"to {m.taker}"
            + (f", new and rare: its {RARE:g} came from {m.giver}" if m.is_added else ""),
            f"{short(m.taker_before)} → {short(m.taker_before + MOVED)}",
            nats(m.kl),
            f"{m.times:.1f} ×",
        )
        for m in facts.moves
    ]
    before, after = short(first.giver_before), short(first.giver_before - MOVED)
    return (
        page.heading(f"What moving {MOVED:.2f} from {first.giver} ({before} → {after}) costs"),
        page.columns(["", "probability", "KL, nats", "price"], rows),
    )


def _samples(facts: KLFacts) -> tuple[RenderableType | None, ...]:
    rows = [
        (
            f"{s.answers:,} answers",
            f"{nats(s.k1)} ± {nats(s.k1_se)}",
            f"{nats(s.k3)} ± {nats(s.k3_se)}",
        )
        for s in facts.samples
    ]
    rows.append(("exact", nats(facts.kl), nats(facts.k3_mean)))
    return (
        page.heading("As trainers see it: from samples", f"(± standard error; seed {facts.seed})"),
        page.columns(["", "k1: mean of u = log p/q", "k3: mean of exp(-u) - 1 + u"], rows),
        support_note(facts.unseen),
    )


def mean_screen(facts: MeanFacts) -> Group:
    """What a logged mean says."""
    is_low = facts.mean_seq < 0
    return page.stack(
        page.title(
            f"A logged KL of {short(facts.mean_seq)} nats per sequence (estimator k1: mean of log p/q)"
        ),
        page.facts(
            [
                ("verdict", _verdict(facts)),
                ("both units", _both_units(facts)),
                *(_chances(facts) if is_low else ()),
                ("why negative", _why(facts)),
                ("truncation", _truncation(facts)),
            ]
        ),
        *(_causes(facts.reading) if facts.reading is Reading.SETTINGS or is_low else ()),
    )


def _verdict(facts: MeanFacts) -> Text:
    words = {
        Reading.NOISE: page.good(
            "NOISE of a signed estimator, as long as it comes and goes. Negative step after step: settings."
        ),
        Reading.SETTINGS: page.bad(
            "SETTINGS: not a KL. Sampling, mask or model differ from what is scored; see below."
        ),
        Reading.ORDINARY: page.good(_evidence(facts)),
        Reading.DIVERGED: page.bad(
            f"DIVERGED, or another unit: above {DIVERGED:g} nat per token hardly anything of the reference is "
            "left. Check whether the number was per sequence."
        ),
        Reading.ZERO: page.doubtful(
            "ZERO: right at step 0. Later: the policy does not move, or is compared with itself."
        ),
    }
    return words[facts.reading]


def _evidence(facts: MeanFacts) -> str:
    return (
        f"ORDINARY: about {facts.answers_for_odds or 0:,} answers convince a reader, by {ODDS:g} to 1, that the policy "
        "wrote them and not the reference."
    )


def _both_units(facts: MeanFacts) -> str:
    return (
        f"{short(facts.mean_seq)} nats per sequence = {short(facts.mean_token)} nats per token, at "
        f"{short(facts.tokens)} tokens per answer (--tokens, --unit)"
    )


def _chances(facts: MeanFacts) -> list[tuple[str, str]]:
    low, rows = short(-facts.mean_seq), f"{facts.rows:,}"
    return [
        (
            "by chance?",
            f"Assumed: {rows} independent answers (--rows), sampled from the policy with just the settings "
            f"that are scored. Then the mean of exp(-log p/q) is at most 1, whatever the KL, and a mean of "
            f"{short(facts.mean_seq)} or lower has a chance of at most exp(-{rows} × {low}) = "
            f"{_percent(facts.chance)}. Noise: {_percent(CHANCE)} or more.",
        ),
        (
            "error bar",
            f"Assumed: log p/q normal with variance 2 × KL, as near the reference. A KL of {low} then makes the mean likeliest: "
            f"standard error sqrt(2 × {low} / {rows}) = {short(facts.standard_error)} nats; the mean lies "
            f"{short(facts.errors_below, 2)} of them too low.",
        ),
        ("plausible", _plausible(facts.plausible_rows or 0)),
    ]


def _plausible(rows: int) -> str:
    if rows == 0:
        return "not even as the mean of a single answer."
    return f"as the mean of up to {rows:,} answers; of more, it is settings."


def _why(facts: MeanFacts) -> str:
    return (
        f"log p/q is negative for every answer that became rarer. In the worked example that is "
        f"{short(100 * facts.negative_share)} % of answers: mean {nats(facts.example_kl)}, standard deviation "
        f"{nats(facts.example_sd)} per answer. k3, k2 and the exact KL are never negative."
    )


def _truncation(facts: MeanFacts) -> str:
    cut = facts.truncation
    example = (
        f"Sampling only the {cut.example_kept} likeliest answers of the worked example turns {nats(cut.example_kl)} "
        f"into a mean of {nats(cut.example_mean)}"
    )
    if not facts.is_truncated:
        return f"{example}. With --top-k or --top-p in use, say so here."
    text = f"{cut.asked}: the answers come from another distribution than p, so the mean is no KL. {example}."
    if cut.lowest_seq is not None:
        can = "can" if facts.mean_seq >= cut.lowest_seq else "CANNOT"
        text += (
            f" {cut.asked} can lower a mean to {short(cut.lowest_token)} per token = "
            f"{short(cut.lowest_seq)} per sequence at most: it {can} explain this one alone."
        )
    return text


def _causes(reading: Reading) -> tuple[Text, Table]:
    rows = [
        (
            "sampling",
            "top-k, top-p, min-p, minimum length, repetition penalty: off. Temperature: the same in both.",
        ),
        (
            "mask",
            "padding, prompt and tokens after the end counted; left padding without position ids.",
        ),
        (
            "models",
            "dropout on; reference = base instead of the start of training; another engine or precision.",
        ),
        ("samples", "old, or drawn from another policy than the one that is scored."),
    ]
    head = "Check first" if reading is Reading.SETTINGS else "If it stays negative, check"
    return page.heading(head), page.facts(rows)


def _percent(chance: float | None) -> str:
    if chance is None:
        return page.ABSENT
    return f"{100 * chance:.2g} %" if chance >= 1e-6 else f"{chance:.1e}"
