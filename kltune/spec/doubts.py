"""A spec in; out: warnings, one sentence each, for what would run but is probably not meant.

Arithmetic alone: no file, no model.
"""

from __future__ import annotations

import posixpath

from kltune.spec.baseline import repeats
from kltune.spec.controller_doubts import controller_doubts
from kltune.spec.guard_doubts import guard_doubts
from kltune.spec.kinship import kin_doubt, kinship, leaves
from kltune.spec.penalty import Penalty
from kltune.spec.problems import Problem
from kltune.spec.scorers import FunctionSpec, Gold, function_of, functions_of
from kltune.spec.study import StudySpec
from kltune.spec.task import TaskSpec
from kltune.spec.trial import KLUnit

_HIGH_PER_TOKEN = 2.0
"""Nats per token that no useful policy reaches: most text has less entropy than that."""


def find_doubts(spec: StudySpec) -> list[str]:
    """What would run but is probably not meant, one sentence each, the field first."""
    doubts = (
        *controller_doubts(spec),
        *_kl_doubts(spec),
        *_step_doubts(spec),
        *_algorithm_doubts(spec),
        *_gold_doubts(spec),
        *_kin_doubts(spec),
        *(Problem(field, text) for field, text in repeats(spec.baselines)),
        *guard_doubts(spec),
    )
    return [str(doubt) for doubt in doubts]


def _algorithm_doubts(spec: StudySpec) -> list[Problem]:
    """What changes the meaning of beta, or leaves a penalty without its correction."""
    doubts: list[Problem] = []
    trainer = spec.trainer
    if trainer.credit == "length-mean":
        text = (
            "length-mean: beta is the price of the mean KL per token, so a nat costs beta / length; where "
            "lengths vary, that is not the gradient of any KL"
        )
        doubts.append(Problem("trainer.kl.credit", text))
    critic = trainer.value_function
    if critic is not None and critic.gamma < 1:
        text = (
            f"{critic.gamma:g} discounts the KL of later tokens too: beta is no longer the price of a "
            "sequence's nat"
        )
        doubts.append(Problem("trainer.critic.gamma", text))
    doubts += _reference_doubts(spec)
    penalties = spec.search.penalty.values()
    if trainer.epochs * trainer.minibatches > 1 and Penalty.K3_LOSS.value in penalties:
        text = (
            f"k3-loss carries no importance ratio (as in classic GRPO), and {trainer.epochs} x "
            f"{trainer.minibatches} updates per rollout leave the policy that sampled; wk3-loss is corrected"
        )
        doubts.append(Problem("search.penalty", text))
    return doubts


def _kl_doubts(spec: StudySpec) -> list[Problem]:
    doubts: list[Problem] = []
    unit = f"nats per {spec.kl_unit.value}"
    guard, limit, target = spec.kl_guard, spec.objective.kl_limit, spec.search.target_kl
    stop = guard.limit if guard is not None and guard.action == "stop" else None
    if stop is not None and limit is not None and stop < limit:
        text = (
            f"{stop:g} {unit} stops trials below objective.kl_limit ({limit:g}), so that limit "
            "hardly ever decides"
        )
        doubts.append(Problem("guards.kl.limit", text))
    if guard is not None and guard.patience >= spec.trainer.steps:
        text = (
            f"{guard.patience} steps can't pass in a trial of {spec.trainer.steps}: it never fires"
        )
        doubts.append(Problem("guards.kl.patience", text))
    highest = None if target is None else target.largest()
    if stop is not None and highest is not None:
        highest *= max(factor for _, factor in spec.control.targets)
        if highest >= stop:
            text = f"up to {highest:g} {unit}, while guards.kl.limit stops a trial at {stop:g}"
            doubts.append(Problem("search.target_kl", text))
    if limit is not None and spec.kl_unit is KLUnit.TOKEN and limit > _HIGH_PER_TOKEN:
        text = (
            f"{limit:g} nats per token is {limit * spec.trainer.max_new_tokens:,g} nats over "
            f"{spec.trainer.max_new_tokens} tokens; if nats per sequence are meant, set kl_unit: sequence"
        )
        doubts.append(Problem("objective.kl_limit", text))
    return doubts


def _step_doubts(spec: StudySpec) -> list[Problem]:
    if spec.evaluate.every < spec.trainer.steps:
        return []
    text = f"{spec.evaluate.every} of {spec.trainer.steps} steps: gold is seen at the start and the end only"
    return [Problem("evaluate.every", text)]


def _gold_doubts(spec: StudySpec) -> list[Problem]:
    """A second gold that judges nothing else."""
    task = spec.task
    if not isinstance(task, TaskSpec):
        return []
    seen = {_spelled(task.gold): "task.gold"}
    doubts: list[Problem] = []
    for name, gold in task.golds.items():
        field = f"task.golds.{name}"
        first = seen.setdefault(_spelled(gold), field)
        if first != field:
            functions = functions_of(gold)
            again = f"{functions[0].function} is the function" if functions else "is the judgement"
            text = f"{again} of {first} again, so it adds no other judgement"
            doubts.append(Problem(field, text))
    return doubts


def _kin_doubts(spec: StudySpec) -> list[Problem]:
    """A proxy that is near the gold, and may be meant so."""
    task = spec.task
    if not isinstance(task, TaskSpec):
        return []
    golds = {"task.gold": task.gold, **{f"task.golds.{n}": g for n, g in task.golds.items()}}
    doubts: list[Problem] = []
    for field, proxy in leaves("task.proxy", task.proxy):
        for name, given in golds.items():
            for other, gold in leaves(name, given):
                kind = kinship(proxy, gold)
                if kind in ("kin", "check"):
                    doubts.append(Problem(field, kin_doubt(kind, other)))
    return doubts


def _spelled(gold: Gold) -> str:
    if not isinstance(gold, str | FunctionSpec):
        return gold.model_dump_json()
    source, _, name = function_of(gold).function.rpartition(":")
    return f"{posixpath.normpath(source)}:{name}"


def _reference_doubts(spec: StudySpec) -> list[Problem]:
    trainer, every = spec.trainer, spec.trainer.reference.every
    if every is None:
        return []
    if every >= trainer.steps:
        text = (
            f"{every} steps don't pass within a trial of {trainer.steps}: the reference never moves"
        )
        return [Problem("trainer.reference.every", text)]
    if every == 1 and trainer.reference.mixture == 1 and trainer.epochs * trainer.minibatches == 1:
        text = (
            "with one update per step the policy is at its reference whenever it learns, so the KL that a "
            "penalty sees is always 0"
        )
        return [Problem("trainer.reference.every", text)]
    return []
