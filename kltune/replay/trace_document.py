"""A traced step in, a document for people out: one completion per block, one token per line, and the sums.

Rendered as trace.html by kltune.report.page and as trace.txt by kltune.replay.plain_text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kltune.metrics.trace import StepTrace, TracedCompletion, TracedRow
from kltune.replay.checks import Check
from kltune.replay.loss_by_hand import (
    Numbers,
    TokenParts,
    column,
    k1,
    k3,
    log_ratio,
    reward_cost,
    token_parts,
)
from kltune.report.document import (
    Block,
    Card,
    Cards,
    Document,
    Facts,
    Grid,
    Paragraph,
    Section,
)
from kltune.trial.words import number

MOST_TOKENS = 4000
"""Tokens that are shown; trace.json holds all."""

DIGITS = 4
_OUTLIER = 0.95
"""Tokens above this quantile of the batch's exact KL are set off."""

_HEADER = (
    "#",
    "token",
    "id",
    "log π",
    "log ref",
    "k1",
    "k3",
    "exact KL",
    "paid in reward",
    "advantage",
    "ratio",
    "policy loss",
    "KL loss",
)


def trace_document(
    name: str, trace: StepTrace, checks: Sequence[Check], recorded_loss: float | None
) -> Document:
    """``name`` says whose step it is; ``recorded_loss`` is train/loss in the study's record."""
    wrong = [check for check in checks if not check.is_equal]
    headline = loss_line(trace, recorded_loss)
    if wrong:
        headline += f". {len(wrong)} of {len(checks)} sums do not agree: see below"
    return Document(
        title=f"{name}, step {trace.step}",
        subtitle=(
            f"One rollout of {len(trace.completions)} completions and "
            f"{_count(len(trace.updates), 'update')} learned from it. All KL are in nats; "
            "log-probs are natural, at the sampling temperature."
        ),
        headline=headline,
        is_answer=not wrong,
        sections=(
            Section("The step", "step", tuple(_about(trace))),
            Section("The sums, done again by hand", "sums", tuple(_sums(checks))),
            Section("Token by token", "tokens", tuple(_completions(trace))),
        ),
    )


def loss_line(trace: StepTrace, recorded_loss: float | None) -> str:
    """``loss = policy + KL - entropy = ...``, summed over the tokens of the first update."""
    with np.errstate(all="ignore"):
        parts = token_parts(trace, trace.updates[0]) if trace.updates else []
    policy = sum(float(one.policy_loss.sum()) for one in parts)
    kl = sum(float(one.kl_loss.sum()) for one in parts)
    entropy = sum(float(one.entropy_loss.sum()) for one in parts)
    total = policy + kl - entropy
    tail = f" - entropy {_exact(entropy)}" if entropy else ""
    text = f"loss = policy {_exact(policy)} + KL {_exact(kl)}{tail} = {_exact(total)}"
    if len(trace.updates) > 1:
        mean = sum(update.loss for update in trace.updates) / len(trace.updates)
        text = f"update 1: {text}; mean over {len(trace.updates)} updates {_exact(mean)}"
    if recorded_loss is None:
        return f"{text}; the record has no train/loss of step {trace.step}"
    return f"{text}; train/loss in the record: {_exact(recorded_loss)}"


def _exact(value: float) -> str:
    return number(value, 7)


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _about(trace: StepTrace) -> Iterator[Block]:
    rules = trace.rules
    lengths = [completion.num_tokens for completion in trace.completions]
    penalty = rules["penalty"] or "none"
    shown = {
        "algorithm": f"{rules['algorithm']}, groups of {rules['group_size']}, loss by {rules['aggregation']}",
        "penalty": f"{penalty}, beta {number(rules['beta'], DIGITS)} (beta_unit {rules['beta_unit']})",
        "coefficient": (
            f"{number(rules['price_loss'], DIGITS)} of the KL in the loss, per nat; "
            f"{number(rules['price_reward'], DIGITS)} of score paid in the reward, per nat"
        ),
        "score": (
            f"(proxy - {number(rules['score_shift'], DIGITS)}) x {number(rules['score_factor'], DIGITS)}"
            + ("" if rules["score_clip"] is None else f", clipped to ±{rules['score_clip']:g}")
        ),
        "sampling": f"temperature {rules['temperature']:g}, at most {rules['max_new_tokens']} tokens",
        "stop ids": f"{_ids(rules['stop_ids'])}; pad id {rules['pad_id']}",
        "tokens": f"{sum(lengths)} valid (up to and including the first stop token), {min(lengths)} to {max(lengths)} each",
    }
    yield Facts(tuple(shown.items()))
    if rules["algorithm"] == "ppo":
        yield Paragraph("The critic's own loss is not taken apart here.", "note")


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def _sums(checks: Sequence[Check]) -> Iterator[Block]:
    yield Paragraph(
        "Each number below was computed a second time from the tokens of this trace, in plain double "
        "precision, and is compared with what the trainer logged for this step."
    )
    rows = tuple(
        (
            check.name,
            check.how,
            _exact(check.by_hand),
            _exact(check.logged),
            "yes" if check.is_equal else "NO",
        )
        for check in checks
    )
    yield Grid(
        header=("number", "how", "by hand", "logged", "equal within rounding"),
        rows=rows,
        marked=frozenset(i for i, check in enumerate(checks) if not check.is_equal),
        numeric=frozenset({2, 3}),
    )


def _completions(trace: StepTrace) -> Iterator[Block]:
    yield Paragraph(
        "k1 = log π - log ref; k3 = exp(-k1) - 1 + k1; the exact KL is that of the whole next-token "
        "distribution. Losses are each token's part of the sum, weight included. Lines that are set off hold "
        "the batch's largest exact KL (the top 5 %)."
    )
    if len(trace.updates) > 1:
        yield Paragraph(
            "Ratio and losses are those of the first update that holds the completion; the others are in trace.json.",
            "note",
        )
    learned = _first_update(trace)
    pool = [column(c.columns, "exact_kl") for c in trace.completions]
    limit = float(np.nanquantile(np.concatenate(pool), _OUTLIER)) if pool else 0.0
    shown, left = 0, MOST_TOKENS
    for completion in trace.completions:
        left -= completion.num_tokens
        if left < 0 and shown:
            break
        shown += 1
        row, parts = learned[completion.row]
        yield _card(completion, row)
        yield _tokens(completion, trace, parts, limit)
    if shown < len(trace.completions):
        yield Paragraph(
            f"{shown} of {len(trace.completions)} completions are shown; trace.json holds all.",
            "note",
        )


def _first_update(trace: StepTrace) -> Mapping[int, tuple[TracedRow, TokenParts]]:
    found: dict[int, tuple[TracedRow, TokenParts]] = {}
    with np.errstate(all="ignore"):
        for update in trace.updates:
            for row, parts in zip(update.rows, token_parts(trace, update), strict=True):
                found.setdefault(row.row, (row, parts))
    return found


def _card(completion: TracedCompletion, row: TracedRow) -> Block:
    ending = "ended by a stop token" if completion.ended else "cut off at the length limit"
    numbers = (
        f"proxy {number(completion.proxy, DIGITS)}, score {number(completion.score, DIGITS)}, "
        f"reward {number(completion.reward, DIGITS)}; {_count(completion.num_tokens, 'token')}, {ending}; "
        f"weight {number(row.weight, DIGITS)} of each token in the loss"
    )
    if completion.proxy is None:
        numbers = f"could not be scored; {numbers}"
    card = Card(f"completion of row {completion.row}", completion.completion, numbers)
    return Cards(f"Row {completion.row}, prompt {completion.prompt_id}", completion.prompt, (card,))


def _tokens(
    completion: TracedCompletion, trace: StepTrace, parts: TokenParts, limit: float
) -> Block:
    drawn = log_ratio(completion)
    columns: dict[str, Numbers] = {
        "log π": column(completion.columns, "policy"),
        "log ref": column(completion.columns, "reference"),
        "k1": k1(drawn),
        "k3": k3(drawn),
        "exact KL": column(completion.columns, "exact_kl"),
        "paid in reward": reward_cost(completion, trace.rules),
        "advantage": column(completion.columns, "advantage"),
        "ratio": parts.ratio,
        "policy loss": parts.policy_loss,
        "KL loss": parts.kl_loss,
    }
    rows = [
        (
            str(place),
            _visible(text),
            str(token),
            *(number(c[place], DIGITS) for c in columns.values()),
        )
        for place, (text, token) in enumerate(
            zip(completion.token_texts, completion.completion_ids, strict=False)
        )
    ]
    summed = {
        "log π",
        "log ref",
        "k1",
        "k3",
        "exact KL",
        "paid in reward",
        "policy loss",
        "KL loss",
    }
    sums = (number(c.sum(), DIGITS) if n in summed else "" for n, c in columns.items())
    marked = frozenset(i for i, kl in enumerate(columns["exact KL"]) if kl > limit > 0)
    return Grid(
        header=_HEADER,
        rows=(*rows, ("", "sum", "", *sums)),
        marked=marked,
        numeric=frozenset({0, *range(2, len(_HEADER))}),
    )


def _visible(text: str) -> str:
    """A token whose spaces and line ends can be seen."""
    return text.replace(" ", "␣").replace("\n", "⏎") or "(empty)"
