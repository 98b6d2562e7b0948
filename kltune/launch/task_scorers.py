"""A spec in, its scorers ready to call out, with the model behind them only where it is needed. Imports torch late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kltune.errors import SpecError
from kltune.launch.assemble import Ground, find_inputs, load_ground, task_with_rewards
from kltune.spec.load import LoadedSpec
from kltune.spec.study import StudySpec
from kltune.spec.task import LearnedProxySpec
from kltune.tasks.protocol import Sample, Scorer, Splits
from kltune.tasks.registry import ShippedProxy
from kltune.trainer.keyed import Purpose
from kltune.trainer.scale import sample_reference
from kltune.trainer.soundness.look import StandIn


@dataclass(frozen=True, slots=True)
class ReadyScorers:
    """What can be called."""

    spec: StudySpec
    splits: Splits
    scorers: Mapping[str, Scorer]
    """By field of the spec, the proxy first."""
    ground: Ground | None
    """The model; none where nothing needs it."""
    notes: tuple[str, ...]


def scorers_of(loaded: LoadedSpec, *, draws: bool) -> ReadyScorers:
    """Make every scorer; the model is loaded to draw from it, or for a proxy that ships with it.

    Raises:
        SpecError: prompts, scorers or a model that can't be used.
        EnvironmentMissingError: this machine lacks what the spec needs.
    """
    inputs = find_inputs(loaded)
    task = inputs.task
    is_unlearned = isinstance(task.proxy, LearnedProxySpec)
    needs_tokens = isinstance(task.proxy, ShippedProxy)
    notes = (
        ("task.proxy: is learned when the sweep starts, so it can't be tried",)
        if is_unlearned
        else ()
    )
    if not draws and needs_tokens:
        notes = ("task.proxy: reads the model's tokens; --draw tries it",)
    if not draws:
        found = task_with_rewards(inputs, "cpu", None)
        proxy, gold, golds, ground = found.proxy, found.gold, found.golds, None
    else:
        ground = load_ground(loaded.spec, inputs, None, StandIn() if is_unlearned else None)
        proxy, gold, golds = ground.data.proxy, ground.data.gold, ground.data.golds
    scorers: dict[str, Scorer] = {"task.gold": gold}
    scorers |= {f"task.golds.{name}": one for name, one in golds.items()}
    if not is_unlearned and not isinstance(proxy, LearnedProxySpec | ShippedProxy):
        scorers = {"task.proxy": proxy, **scorers}
    return ReadyScorers(loaded.spec, task.splits, scorers, ground, notes)


def drawn_answers(ready: ReadyScorers, count: int) -> list[Sample]:
    """``count`` completions of the reference, each of another prompt of select as far as there are.

    Raises:
        SpecError: there is no model to draw from.
    """
    ground = ready.ground
    if ground is None:
        raise SpecError("--draw: the model was not loaded")
    select = ground.data.select
    prompts = [i % len(select) for i in range(count)]
    seed = (ready.spec.seed, Purpose.COMPARISON)
    return sample_reference(ground.loaded, select, prompts, 1, ready.spec.trainer, seed)
