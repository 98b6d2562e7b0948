"""The table of published findings in README.md: what was said and where, the verdict here, and by what."""

from __future__ import annotations

from collections.abc import Callable

from experiment_tables import interval_words, markdown
from penalties_data import Found

SHAH = "Shah et al. [2512.21852](https://arxiv.org/abs/2512.21852)"
"""Qwen2.5-7B, Llama-3.1-8B-Instruct and Qwen3-4B-Instruct on MATH; beta 0, .05, .1, .3 and 1."""
LIU = "Liu et al. [2510.01555](https://arxiv.org/abs/2510.01555)"
PUBLISHED = {
    "k1-reward is best": f"{SHAH}: k1 in the reward is best, at beta .05 and .1",
    "k3-reward collapses": f"{SHAH}: k3 in the reward collapses at all beta",
    "k1-loss does nothing": f"{LIU}: k1 in the loss at beta .5 is about as no KL (the expected gradient is 0)",
    "k1-loss collapses": f"{SHAH}: k1 in the loss is unstable and collapses from beta .3 on (Llama from .05)",
    "k3-loss is below k1-reward": f"{SHAH}: k3 in the loss is stable but below k1 in the reward",
}
WHEN = {"end": "at the end", "stopped": "when stopped"}
PLANNED, AFTER = "before", "afterwards"


def claims_table(claims: Found) -> str:
    """A row for each claim and setting; a claim is said in its first row; rules written afterwards come last."""
    after = claims["afterwards"]
    rows = [
        *(
            _row("k1-reward is best", WHEN[how], PLANNED, one, _best_by(one))
            for how, one in claims.get("k1-reward is best", {}).items()
        ),
        *_by_setting("k3-reward collapses", PLANNED, claims["k3-reward collapses"], _change_by),
        *_by_setting("k1-loss does nothing", PLANNED, claims["k1-loss does nothing"], _idle_end_by),
        *_by_setting("k1-loss does nothing", AFTER, after["k1-loss does nothing"], _idle_run_by),
        *_by_setting("k1-loss collapses", AFTER, after["k1-loss collapses"], _change_by),
        *(
            _row("k3-loss is below k1-reward", WHEN[how], AFTER, one, _below_by(one))
            for how, one in after["k3-loss is below k1-reward"].items()
        ),
    ]
    said = [row[0] for row in rows]
    shown = [[*([""] if text in said[:i] else [text]), *rows[i][1:]] for i, text in enumerate(said)]
    return markdown(["published", "of", "rule written", "here", "by"], shown)


def _by_setting(claim: str, rule: str, found: Found, by: Callable[[Found], str]) -> list[list[str]]:
    return [_row(claim, name, rule, one, by(one)) for name, one in found.items()]


def _row(claim: str, of: str, rule: str, one: Found, by: str) -> list[str]:
    return [PUBLISHED[claim], of, rule, one["verdict"], by]


def _best_by(one: Found) -> str:
    apart = [f"{p} {word}" for p, word in one["where"].items() if word != "untold"]
    return f"told apart from k1-reward: {', '.join(apart) or 'none'}; half widths {one['smallest_half']:.2f} to {one['largest_half']:.2f}"


def _change_by(one: Found) -> str:
    return f"gold at the end less its start {interval_words(one['gold_change'])}"


def _idle_end_by(one: Found) -> str:
    return _idle_by(one, "KL at the end")


def _idle_run_by(one: Found) -> str:
    return _idle_by(one, "KL along the run")


def _idle_by(one: Found, what: str) -> str:
    text = f"{what} {interval_words(one['to_none'])} times that of no KL"
    if one["to_k1_reward"] is None:
        return text
    return f"{text}, {interval_words(one['to_k1_reward'])} times that of k1-reward"


def _below_by(one: Found) -> str:
    return f"gold at the best beta less k1-reward's {interval_words(one['to_k1_reward'])}"
