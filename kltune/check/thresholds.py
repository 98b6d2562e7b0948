"""The limits that a check judges by, each with its reason; the table states them. No flag changes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Gaps:
    """What arithmetic alone may make, by the precision of the passes."""

    warn: float
    """Largest difference of one token's log-prob, nats."""
    fail: float
    kl_fail: float
    """KL of a model against itself, nats per token."""


GAPS: Final = {"fp32": Gaps(1e-4, 1e-3, 1e-6), "bf16": Gaps(0.1, 0.5, 1e-3)}
"""fp32: two shapes of a batch differ by some 1e-6 on the built-in model and 1e-5 on larger ones (field cases A10,
A12: 1e-6 nats of KL, 1e-4 of a log-prob); a shift, dropout or another temperature makes tenths. bf16: one logit near
10 is rounded by .03, its log-prob by .015 (A46), and a token's error is a few of these; the KL goes by its square."""

OFF_BY_ONE: Final = 1e-9
"""Weight of the loss outside the completions: any at all is a fault; this is what sums leave of zero."""

TAIL_WARN: Final = 0.9
"""Share of completions that begin with the last token of their own prompt: texts seldom repeat it, and where the
completion begins one token early all do."""

TOKENIZER_WARN: Final = 0.95
TOKENIZER_FAIL: Final = 1.0
"""What the model makes of the prompts over what it makes of the same with every token replaced by another at random:
its surprise at them, or the entropy of its answers, whichever is smaller (a base that learned answers alone is as
surprised by any prompt). Measured: the built-in model .45, its larger sister .24, the smallest, which hardly reads
its prompts, .93; random weights .998. With a shuffled vocabulary the entropies are .4 to 2 of each other and the
surprises .95 to 1.15, so that most are found, and not all. So this warns, and fails only where noise reads better by
both."""

SURPRISE_WARN: Final = 2.0
"""Surprise at the prompts above that at the same with the ids mixed up, in standard deviations of the latter over its
mixings: above it the model expects these words less than chance ones. A vocabulary that was shuffled is a mixing as
any other, so this finds about one in five of them. Measured: the built-in models -1.0 to 1.2, shuffled -1.8 to 2.6."""

UNKNOWN_WARN: Final = 0.02
UNKNOWN_FAIL: Final = 0.5
"""Share of unknown tokens in prompts: more than one in fifty, and the model reads another text than is meant; more
than half, and it reads none."""

ENDED_WARN: Final = 0.05
"""Share of completions that end by themselves: below it nearly every one is cut, and its score is that of half a text."""

UNSCORED_WARN: Final = 0.1
UNSCORED_FAIL: Final = 0.5
"""Share that the proxy can't score: they take no part in training, so groups shrink and the mean KL is of others."""

CONSTANT_WARN: Final = 0.5
"""Share of prompts whose completions all have one score: no gradient comes from them."""

SAME_CORRELATION: Final = 0.9999
"""Correlation from which on gold is the proxy in another unit: nothing is held out. Of ranks: gold orders completions
as the proxy does, by a curve."""

NEAR_RANKS: Final = 0.98
"""Rank correlation above which gold is suspiciously near the proxy: what training reaches, gold will praise."""

RANKS_DISTINCT: Final = 5
"""Different scores from which on equal ranks are no coincidence: with two or three kinds of completion they may be."""

ORDER_GAP: Final = 0.01
"""Difference by the order of the list, over the spread of the scores, that is more than arithmetic: a reward model
pads its batches otherwise, and its scores move by 1e-6 of the spread in fp32 and some 1e-3 in bf16."""

PENALTY_WARN: Final = 10.0
"""Mean penalty at the KL limit over the reward's spread, at the smallest beta above 0. The best policy at a beta has
a KL of about (spread / beta)² / 2 nats, so at ten times the spread it stays within thousandths of a nat of the
reference: nothing is learned (field case E3: .5 against 1e-4, a ratio of 5000)."""

PENALTY_IDLE: Final = 0.01
"""The same at the largest beta: a penalty of a hundredth of the spread at the KL limit is lost in the reward's noise."""

FLOOR_WARN: Final = 0.01
"""KL that the arithmetic alone makes, over the smallest KL limit or target of the spec: above it the monitor is off by
more than one in a hundred."""

MEMORY_WARN: Final = 0.8
"""Share of the free memory that the bank is reckoned to take; the reckoning is good to some 20 %."""
