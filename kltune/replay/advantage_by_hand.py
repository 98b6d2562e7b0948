"""A traced step in, its rewards, advantages and loss weights out: plain arithmetic in float64, no trainer.

The formulas are those of kltune.trainer.advantage and kltune.trainer.aggregate, written a second time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kltune.metrics.trace import StepTrace, TracedCompletion, TracedRow
from kltune.replay.loss_by_hand import Numbers, column, reward_cost


def scores(trace: StepTrace) -> list[float]:
    """What is paid for each completion: (proxy - shift) x factor, clipped; 0 where unscored."""
    rules = trace.rules
    limit = rules["score_clip"]
    found: list[float] = []
    for completion in trace.completions:
        if completion.proxy is None:
            found.append(0.0)
            continue
        score = (completion.proxy - rules["score_shift"]) * rules["score_factor"]
        found.append(score if limit is None else float(np.clip(score, -limit, limit)))
    return found


def rewards(trace: StepTrace) -> list[float]:
    """Score less the whole completion's KL (its mean under length-mean); 0 where unscored."""
    found: list[float] = []
    for completion in trace.completions:
        cost = reward_cost(completion, trace.rules)
        whole = cost.sum()
        if trace.rules["credit"] == "length-mean":
            whole = whole / max(1, len(cost))
        found.append(0.0 if completion.proxy is None else completion.score - float(whole))
    return found


def advantages(trace: StepTrace) -> list[Numbers]:
    """Per valid token of each completion, by the step's algorithm."""
    is_scored = [completion.proxy is not None for completion in trace.completions]
    if trace.rules["algorithm"] == "ppo":
        own = _by_critic(trace)
        return _white(trace, own, is_scored) if trace.rules["whiten"] else _known(own, is_scored)
    if trace.rules["algorithm"] == "reinforce":
        own = [returns[: c.num_tokens] for returns, c in _rows(trace)]
        return (
            _white(trace, own, is_scored) if sum(is_scored) > 1 else _known(own, [False] * len(own))
        )
    size = trace.rules["group_size"]
    found: list[Numbers] = []
    for first in range(0, len(trace.completions), size):
        found += _of_group(trace, _rows(trace)[first : first + size])
    return found


def weights(trace: StepTrace, rows: Sequence[TracedRow]) -> list[float]:
    """Weight of each valid token of the update's rows, by the step's aggregation."""
    lengths = [trace.completions[row.row].num_tokens for row in rows]
    sequences = max(1, sum(length > 0 for length in lengths))
    match trace.rules["aggregation"]:
        case "token-mean":
            return [1.0 / max(1, sum(lengths))] * len(rows)
        case "seq-mean-token-mean":
            return [1.0 / (max(1, length) * sequences) for length in lengths]
        case "seq-mean-token-sum":
            return [1.0 / sequences] * len(rows)
        case _:
            return [1.0 / (sequences * trace.rules["max_new_tokens"])] * len(rows)


def _rows(trace: StepTrace) -> list[tuple[Numbers, TracedCompletion]]:
    """Each completion with its return at every position, those beyond its end too: nothing is paid there."""
    width = max(completion.num_tokens for completion in trace.completions)
    found: list[tuple[Numbers, TracedCompletion]] = []
    for completion, reward in zip(trace.completions, rewards(trace), strict=True):
        cost = reward_cost(completion, trace.rules)
        if trace.rules["credit"] == "reward-to-go":
            to_go = cost[::-1].cumsum()[::-1]
            if trace.rules["penalty"] == "exact-full":  # the loss holds a token's own part
                to_go = np.append(to_go[1:], 0.0)
            returns = completion.score - np.append(to_go, np.zeros(width - len(to_go)))
        else:
            returns = np.full(width, reward)
        found.append((returns, completion))
    return found


def _of_group(trace: StepTrace, rows: Sequence[tuple[Numbers, TracedCompletion]]) -> list[Numbers]:
    """Return less the group's mean (rloo: that of the others), over the spread of its rewards under grpo."""
    whole = rewards(trace)
    scored = [returns for returns, completion in rows if completion.proxy is not None]
    if len(scored) < 2:
        return [np.zeros(completion.num_tokens) for _, completion in rows]
    table = np.stack(scored)
    divisor = 1.0
    if trace.rules["algorithm"] == "grpo":
        known = [whole[completion.row] for _, completion in rows if completion.proxy is not None]
        divisor = float(np.std(known, ddof=1)) + trace.rules["std_epsilon"]
    found: list[Numbers] = []
    for returns, completion in rows:
        if completion.proxy is None:
            found.append(np.zeros(completion.num_tokens))
            continue
        mean = table.mean(axis=0)
        if trace.rules["algorithm"] == "rloo":
            mean = (table.sum(axis=0) - returns) / (len(scored) - 1)
        # Equal returns teach exactly nothing, whatever their mean is rounded to.
        own = np.where(np.ptp(table, axis=0) == 0, 0.0, (returns - mean) / divisor)
        found.append(own[: completion.num_tokens])
    return found


def _white(trace: StepTrace, values: Sequence[Numbers], is_known: Sequence[bool]) -> list[Numbers]:
    """Less the mean and over the standard deviation of all known tokens; 0 at the others."""
    pool = np.concatenate([own for own, known in zip(values, is_known, strict=True) if known])
    if len(pool) < 2:
        return _known(values, is_known)
    if np.ptp(pool) == 0:
        return [np.zeros(len(own)) for own in values]
    divisor = np.sqrt(pool.var(ddof=1) + trace.rules["variance_epsilon"])
    return _known([(own - pool.mean()) / divisor for own in values], is_known)


def _known(values: Sequence[Numbers], is_known: Sequence[bool]) -> list[Numbers]:
    return [
        own if known else np.zeros(len(own)) for own, known in zip(values, is_known, strict=True)
    ]


def _by_critic(trace: StepTrace) -> list[Numbers]:
    """Generalised advantages (1506.02438), not whitened yet."""
    rules = trace.rules
    found: list[Numbers] = []
    for completion in trace.completions:
        cost, value = reward_cost(completion, rules), column(completion.columns, "value")
        reward = -cost
        if len(reward):
            reward[-1] += completion.score
        later = np.append(value[1:], 0.0)
        surprise = reward + rules["gamma"] * later - value
        ahead, own = 0.0, np.zeros(len(value))
        for t in reversed(range(len(value))):
            ahead = surprise[t] + rules["gamma"] * rules["gae_lambda"] * ahead
            own[t] = ahead
        found.append(own)
    return found
