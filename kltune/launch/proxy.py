"""A task's proxy as it comes in, a scorer that is ready out: loaded, or learned once and kept in the study."""

from __future__ import annotations

import logging
from pathlib import Path

from kltune.rewards.comparisons import labelled, noisy_labels
from kltune.rewards.learned import EncodePrompt, FitSettings, LearnedReward, fit_learned_reward
from kltune.spec.task import LearnedProxySpec
from kltune.spec.trainer import TrainerSpec
from kltune.tasks.protocol import Scorer
from kltune.tasks.registry import ShippedProxy, Task
from kltune.trainer.data import EncodedPrompts
from kltune.trainer.keyed import Purpose
from kltune.trainer.model import LoadedModel
from kltune.trainer.scale import sample_reference
from kltune.trainer.score import score_samples

LOG = logging.getLogger(__name__)


def folder_of(study_path: Path) -> Path:
    """Where a study keeps the proxy that it learned."""
    return study_path / "artifacts" / "proxy"


def ready_proxy(
    task: Task,
    loaded: LoadedModel,
    train: EncodedPrompts,
    encode: EncodePrompt,
    trainer: TrainerSpec,
    place: tuple[Path | None, int],
) -> Scorer:
    """The proxy of a task. ``place``: study folder and seed of a proxy that is learned here.

    Must be called before adapters are put on the base: a learned trunk is a copy of it. Writes
    nothing: :func:`keep_proxy` does, once the study folder is ours.
    """
    if isinstance(task.proxy, ShippedProxy):
        return _on_device(LearnedReward.load(task.proxy.folder, encode), loaded)
    if not isinstance(task.proxy, LearnedProxySpec):
        return task.proxy
    study_path, seed = place
    if study_path is not None and _is_kept(folder_of(study_path)):
        return _on_device(LearnedReward.load(folder_of(study_path), encode), loaded)
    reward = learn(task, task.proxy, loaded, train, trainer, seed)
    reward.encode_prompt = encode
    return reward


def keep_proxy(task: Task, proxy: Scorer, study_path: Path) -> None:
    """Write a proxy that was learned for this study into its folder, once."""
    if not isinstance(task.proxy, LearnedProxySpec) or _is_kept(folder_of(study_path)):
        return
    if isinstance(proxy, LearnedReward):
        proxy.save(folder_of(study_path))


def _is_kept(folder: Path) -> bool:
    return (folder / "reward.json").is_file()


def learn(
    task: Task,
    spec: LearnedProxySpec,
    loaded: LoadedModel,
    train: EncodedPrompts,
    trainer: TrainerSpec,
    seed: int,
) -> LearnedReward:
    """Fit a reward model to noisy comparisons of the reference's own completions on train prompts."""
    LOG.info("learning the proxy: sampling %d comparisons", spec.comparisons)
    prompts = [i % len(train) for i in range(spec.comparisons)]
    samples = sample_reference(loaded, train, prompts, 2, trainer, (seed, Purpose.COMPARISON))
    gold = score_samples(task.gold, samples, slot=-1)
    labels = noisy_labels(gold[::2], gold[1::2], spec.label_noise, seed)
    pairs = [
        (train.ids[prompt], first.token_ids, second.token_ids)
        for prompt, first, second in zip(prompts, samples[::2], samples[1::2], strict=True)
    ]
    comparisons = labelled(pairs, labels)
    settings = FitSettings(
        steps=spec.steps,
        batch_size=min(spec.batch, len(comparisons)),
        learning_rate=spec.learning_rate,
        layers=spec.layers,
    )
    reward = fit_learned_reward(loaded.model, comparisons, spec.label_noise, settings, seed)
    LOG.info(
        "learned the proxy from %d comparisons; it orders %.0f %% of the held-out ones as labelled",
        reward.facts.comparisons,
        100 * reward.facts.held_out_accuracy,
    )
    return reward


def _on_device(reward: LearnedReward, loaded: LoadedModel) -> LearnedReward:
    reward.trunk.to(loaded.device)  # pyright: ignore[reportArgumentType]
    reward.head.to(loaded.device)
    return reward
