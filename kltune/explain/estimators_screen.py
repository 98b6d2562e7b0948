"""What `explain estimators` computed in, its screen out."""

from __future__ import annotations

import math

from rich.console import Group
from rich.text import Text

from kltune.explain import page
from kltune.explain.distribution import Pair
from kltune.explain.estimators import EstimatorsFacts, PenaltyFacts, judge
from kltune.explain.page import nats, short
from kltune.spec.penalty import Penalty

_WRONG_WAY = Pair(policy=(0.8, 0.2), reference=(0.5, 0.5))
"""Where k3 in the reward pulls away from the reference."""


def estimators_screen(facts: EstimatorsFacts, *, is_example: bool) -> Group:
    """Estimators as values, penalties as gradients."""
    of = "the worked example" if is_example else "your distributions"
    return page.stack(
        page.title(f"KL estimators on {of}: as a number, and as a pull on the policy"),
        _distributions(facts),
        page.heading("As a number", f"u = log p/q of a sampled answer; KL = {nats(facts.kl)} nats"),
        page.columns(
            ["", "formula<", "mean", "bias", "sd", "answers for 10 % error"],
            [
                (
                    row.name,
                    row.formula,
                    nats(row.mean),
                    nats(row.bias),
                    nats(row.sd),
                    page.ABSENT if row.answers_needed is None else f"{row.answers_needed:,}",
                )
                for row in facts.estimators
            ],
        ),
        support_note(facts.unseen) if math.isfinite(facts.kl) else None,
        *_pulls(facts),
    )


def support_note(unseen: float) -> Text | None:
    """Why k3's mean is below the KL; none where it is not."""
    if unseen == 0:
        return None
    return page.doubtful(
        "k3 is unbiased only where the policy can give every answer of the reference: "
        f"{short(unseen)} of it are lost here, and by so much k3's mean is below the KL."
    )


def _distributions(facts: EstimatorsFacts) -> Text:
    def listed(values: tuple[float, ...]) -> str:
        return " ".join(short(v) for v in values[:8]) + (" ..." if len(values) > 8 else "")

    return page.prose(f"reference q: {listed(facts.reference)}   policy p: {listed(facts.policy)}")


def _pulls(facts: EstimatorsFacts) -> list[Text | Group]:
    if facts.true_gradient is None:
        text = "The KL is infinite: the policy gives an answer that the reference never gives. No penalty has a gradient."
        return [Text("\n"), page.bad(text)]
    table = page.columns(
        ["penalty", "cosine", "length", "verdict<"],
        [
            (row.penalty.value, _three(row.cosine), _three(row.norm_ratio), _coloured(row))
            for row in facts.penalties
        ],
    )
    note = "expected gradient against that of KL(policy ‖ reference)"
    return [page.heading("As a pull", note), page.stack(table, page.prose(_footnote()))]


def _footnote() -> str:
    wrong = judge(_WRONG_WAY, Penalty.K3_REWARD)
    return (
        "Cosine 1 and length 1: the KL's own gradient. Softmax logits, one token, right after sampling. "
        f"k3-reward can turn round: p .8 .2, q .5 .5 give cosine {_three(wrong.cosine)}."
    )


def _coloured(row: PenaltyFacts) -> Text:
    if not row.is_sound:
        return page.bad(row.verdict)
    return page.good(row.verdict) if row.verdict.startswith("right") else page.doubtful(row.verdict)


def _three(value: float | None) -> str:
    return page.ABSENT if value is None else f"{value:.3f}"
