"""What a rule of ``kltune diagnose`` is: what it asks, what it needs from the log, and how it judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kltune.diagnose.result import Sign
from kltune.diagnose.runlog import RunLog
from kltune.symptoms.curve import Quantity

QUANTITY_WORDS = {
    Quantity.KL_TOKEN: "reference KL per token",
    Quantity.KL_SEQ: "reference KL per sequence",
    Quantity.K1_TOKEN: "k1 (signed log-ratio) per token",
    Quantity.K1_SEQ: "k1 (signed log-ratio) per sequence",
    Quantity.K1_SEQ_SE: "standard error of k1",
    Quantity.KL_P99_TOKEN: "99th percentile of the KL over tokens",
    Quantity.KL_MAX_TOKEN: "largest KL of a token",
    Quantity.UPDATE_KL_TOKEN: "KL of one update",
    Quantity.SAMPLER_KL_TOKEN: "KL between sampler and trainer",
    Quantity.PROXY: "training reward",
    Quantity.PROXY_STD: "spread of the reward",
    Quantity.ZERO_GROUPS: "share of groups without spread",
    Quantity.ADVANTAGE_STD: "spread of the advantages",
    Quantity.GOLD: "gold (a held-out judgement)",
    Quantity.GOLD_SE: "standard error of gold",
    Quantity.BETA: "KL coefficient",
    Quantity.TARGET: "KL target",
    Quantity.ENTROPY: "entropy",
    Quantity.LENGTH: "completion length",
    Quantity.TRUNCATED: "share of truncated completions",
    Quantity.REPEATED: "share of repeated trigrams",
    Quantity.LOSS: "loss",
    Quantity.LOSS_KL: "KL part of the loss",
    Quantity.LOSS_POLICY: "policy part of the loss",
    Quantity.GRAD_NORM: "gradient norm",
    Quantity.LEARNING_RATE: "learning rate",
    Quantity.CLIP_FRAC: "share of clipped ratios",
    Quantity.EXPLAINED_VARIANCE: "explained variance of the critic",
    Quantity.KL_PROXY_CORR: "correlation of KL and reward",
}
"""For people."""

Judge = Callable[[RunLog], Sign | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One question to a run's log."""

    title: str
    """What holds when it finds nothing: ``the KL stays bounded``."""
    judge: Judge
    needs: tuple[tuple[Quantity, ...], ...] = ()
    """Of each group at least one quantity must be in the log."""
    lacks_else: Callable[[RunLog], str] | None = None
    """What else the log may lack for it; empty: nothing."""
    is_optional: bool = False
    """Not asked of logs that lack it: there need be no controller, critic or limit."""
    least: int = 0
    """Logged steps of what it needs below which finding nothing says nothing."""
    lacks_after: Callable[[RunLog], str] | None = None
    """What the log lacks for a clean answer, asked only where the rule found nothing; empty: nothing."""

    def lacks(self, run: RunLog) -> str:
        """What the log doesn't hold; empty where the rule can look."""
        # What is nowhere finite is nothing that a rule could look at.
        missing = [group for group in self.needs if not any(run.curve.known(one) for one in group)]
        if missing or self.lacks_else is None:
            has_kl = any(run.curve.has(one) for one in _KL)
            kl = (
                ""
                if has_kl
                else f"KL to the reference{' that can be used' if run.unread_kl else ''}"
            )
            return ", ".join(dict.fromkeys(_words(group, kl) for group in missing))
        return self.lacks_else(run)

    def lacks_to_pass(self, run: RunLog) -> str:
        """What keeps a rule that found nothing from being passed; empty: it is."""
        counts = [max(len(run.curve.known(one)) for one in group) for group in self.needs]
        count = min(counts, default=len(run.curve.steps))
        if count < self.least:
            return f"course of at least {self.least} logged steps (there {'is' if count == 1 else 'are'} {count})"
        return "" if self.lacks_after is None else self.lacks_after(run)


def _words(group: tuple[Quantity, ...], kl: str) -> str:
    """What a group is called; ``kl`` stands for a KL where the log has none."""
    if kl and group[0] in _KL:
        return kl
    return " or ".join(QUANTITY_WORDS[one] for one in group)


_KL = (Quantity.KL_TOKEN, Quantity.KL_SEQ)
