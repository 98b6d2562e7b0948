"""Completions of the reference in; best-of-n under every learned proxy, and how well each proxy sees gold, out.

Every draw has completions of its own on the select prompts, scored by gold once and by each proxy of that draw, so
draws are the unit of replication here as they are for the runs. Importing this loads torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kltune.launch.assemble import Ground, find_inputs, load_ground
from kltune.launch.preview_draw import Plan, completions_of, draw_policy, scores_PN
from kltune.preview.curves import sizes
from kltune.rewards.learned import LearnedReward
from kltune.spec.load import LoadedSpec
from kltune.spec.trainer import TrainerSpec
from kltune.statistics.best_of_n import kl_bound, subset_weights
from kltune.tasks.protocol import Sample, Scorer
from kltune.trainer.data import spread_evenly

Floats = NDArray[np.float64]

_TRAIN = 2**16
"""Address of the draws for train prompts."""


@dataclass(frozen=True)
class Scored:
    """One draw's completions under one proxy."""

    proxy_PN: Floats
    gold_PN: Floats

    def agreement(self) -> float:
        """Share of the pairs of one prompt that the proxy orders as gold does; gold's ties are left out."""
        right, pairs = 0.0, 0
        for proxy, gold in zip(self.proxy_PN, self.gold_PN, strict=True):
            above = np.sign(np.subtract.outer(gold, gold))
            said = np.sign(np.subtract.outer(proxy, proxy))
            right += float(np.where(said == 0, 0.5, said == above)[above > 0].sum())
            pairs += int((above > 0).sum())
        return right / max(1, pairs)

    def best_of_n(self) -> list[dict[str, float]]:
        """Gold and proxy of the best of n by the proxy, n = 1, 2, 3, 4, 6, ..., meaned over prompts; unbiased."""
        rows: list[dict[str, float]] = []
        for n in sizes(self.proxy_PN.shape[1]):
            weights = subset_weights(self.proxy_PN, n)
            gold, proxy = ((weights * v).sum(axis=1).mean() for v in (self.gold_PN, self.proxy_PN))
            rows.append({"n": n, "kl": kl_bound(n), "gold": float(gold), "proxy": float(proxy)})
        return rows


@dataclass(frozen=True)
class Draws:
    """What is drawn: seeds, and how many completions of each prompt for each."""

    seeds: Sequence[int]
    completions: int
    prompts: int
    on_train: int
    """Completions of as many train prompts, which tell how well a proxy sees gold where it is optimised."""


def trace_proxies(
    loaded: LoadedSpec, proxies: Callable[[int], Mapping[str, Path]], draws: Draws
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(best-of-n by split, level, draw and n; facts of the proxies by level and draw).

    ``proxies``: folders of a draw's learned proxies by level. The proxy that the task ships is traced as ``shipped``.
    """
    curves: list[dict[str, Any]] = []
    facts: list[dict[str, Any]] = []
    ground = load_ground(loaded.spec, find_inputs(loaded), None)
    data = ground.data
    on_train = replace(ground, data=replace(data, select=data.train))
    for seed in draws.seeds:
        looks = [
            _look(ground, loaded.spec.trainer, seed, draws, draws.completions),
            _look(on_train, loaded.spec.trainer, seed, draws, draws.on_train),
        ]
        for level, scorer, own in _scorers(ground, proxies(seed)):
            scored, train = (look.scored_by(scorer) for look in looks)
            for split, look in (("select", scored), ("train", train)):
                where = {"split": split, "level": level, "draw": seed}
                curves += [{**where, **row} for row in look.best_of_n()]
            told = {
                "agreement": scored.agreement(),
                "agreement_train": train.agreement(),
                "gold_sd": float(scored.gold_PN.std()),
            }
            facts.append({"level": level, "draw": seed, **own, **told})
    return pd.DataFrame(curves), pd.DataFrame(facts)


@dataclass(frozen=True)
class Look:
    """Completions of one draw on the prompts of one split, scored by gold."""

    samples: list[Sample]
    plan: Plan
    gold_PN: Floats

    def scored_by(self, scorer: Scorer) -> Scored:
        """And by a proxy."""
        return Scored(scores_PN(scorer, self.samples, self.plan), self.gold_PN)


def _look(ground: Ground, trainer: TrainerSpec, seed: int, draws: Draws, completions: int) -> Look:
    indices = tuple(spread_evenly(len(ground.data.select), draws.prompts))
    plan = Plan(indices, completions, seed, trainer)
    policy = 0 if completions == draws.completions else _TRAIN
    drawn = draw_policy(ground, plan, completions, policy)
    samples = completions_of(ground, plan, drawn, completions)
    return Look(samples, plan, scores_PN(ground.data.gold, samples, plan))


def _scorers(
    ground: Ground, folders: Mapping[str, Path]
) -> Iterator[tuple[str, Scorer, dict[str, Any]]]:
    shipped = ground.data.proxy
    assert isinstance(shipped, LearnedReward)
    yield "shipped", shipped, _facts(shipped)
    for level, folder in folders.items():
        reward = LearnedReward.load(folder, shipped.encode_prompt)
        yield level, reward, _facts(reward)


def _facts(reward: LearnedReward) -> dict[str, Any]:
    """``comparisons`` trained on; ``label_accuracy``: on held-out comparisons, by their noisy labels."""
    found = asdict(reward.facts)
    layers = reward.trunk.config.get_text_config().num_hidden_layers
    return {
        "trained_on": found["comparisons"],
        "noise": found["label_noise"],
        "layers": layers,
        "label_accuracy": found["held_out_accuracy"],
    }
