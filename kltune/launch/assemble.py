"""A loaded spec in, everything that a search trains with out: base, task, proxy, sigma_R, bank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from kltune.errors import SpecError
from kltune.launch.judges import folder_of
from kltune.launch.long_prompts import without_long
from kltune.launch.made_rewards import RewardPlace
from kltune.launch.placement import device_slots
from kltune.launch.proxy import ready_proxy
from kltune.metrics.jsonl import read_json, write_json
from kltune.metrics.record import RewardScale
from kltune.spec.kinship import checked_again
from kltune.spec.load import LoadedSpec, resolve_path
from kltune.spec.study import StudySpec
from kltune.spec.task import TaskSpec
from kltune.tasks.calls_probe import probe_scorers
from kltune.tasks.protocol import Prompt, Scorer
from kltune.tasks.registry import Task, load_task, with_rewards
from kltune.trainer.bank import Bank
from kltune.trainer.data import EncodedPrompts, TaskData, encode_split, with_text_rules
from kltune.trainer.encode import PromptEncoder
from kltune.trainer.model import LoadedModel, load_model
from kltune.trainer.parts import BankSettings
from kltune.trainer.runnable import known_ids
from kltune.trainer.scale import measure_scale
from kltune.trainer.sources import ModelSource, find_model

REFERENCE = "reference.json"
"""The proxy under the reference, in the study folder."""

CUDA_SLOTS = 8
"""Trials at once where a CUDA device shares weight reads between them (design.md §5)."""


JudgedOn = Literal["select", "test"]
"""The split that evaluations use; test is for `kltune confirm` alone."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a spec names, found but not yet loaded: wrong paths and scorers show here."""

    task: Task
    source: ModelSource
    look_up: Callable[[str], Path] = Path
    """Where a relative path of the spec lies."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The frozen base and the task on it."""

    loaded: LoadedModel
    data: TaskData
    judged_on: JudgedOn = "select"
    """Whose prompts ``data.select`` holds."""


def find_inputs(spec: LoadedSpec) -> Inputs:
    """Read prompts and scorers and look the model up; no weights are loaded."""

    def look_up(text: str) -> Path:
        return resolve_path(spec, text)

    task = load_task(spec.spec.task, look_up)
    source = find_model(spec.spec.model, look_up)
    return Inputs(without_long(task, spec.spec, source), source, look_up)


def load_ground(
    spec: StudySpec,
    inputs: Inputs,
    study_path: Path | None,
    stand_in: Scorer | None = None,
    judged_on: JudgedOn = "select",
) -> Ground:
    """Load the base, encode the prompts and get the proxy ready (learning it where the spec says so).

    ``study_path``: where a proxy that was learned before may lie; nothing is written.

    ``stand_in`` takes the place of the proxy, for a run that only measures time. ``judged_on``: whose
    prompts evaluations use.

    Raises:
        SpecError: a prompt that is too long, a model that can't be trained.
    """
    trainer = spec.trainer
    probe_scorers(inputs.task)
    loaded = load_model(spec.model, inputs.source, trainer.device, trainer.precision)
    loaded = with_text_rules(loaded, trainer.stop, spec.model.answer_after)
    limit = _prompt_limit(spec, loaded)
    encoder = PromptEncoder(loaded.tokenizer, spec.model, limit, known_ids(loaded.model))
    task = task_with_rewards(inputs, str(loaded.device), study_path)
    splits = task.splits
    judged = splits.select if judged_on == "select" else splits.test
    train = encode_split(encoder, splits.train, "train")
    select = encode_split(encoder, judged, judged_on)
    encode = _remembering(encoder, train, select)
    place = (study_path, spec.seed)
    proxy = stand_in or ready_proxy(task, loaded, train, encode, trainer, place)
    data = TaskData(train, select, proxy, task.gold, task.golds)
    return Ground(loaded, data, judged_on)


def task_with_rewards(inputs: Inputs, device: str, study_path: Path | None) -> Task:
    """The task, with its rewards that are no functions made: models are loaded, files read.

    Raises:
        SpecError: one can't be made.
        EnvironmentMissingError: this machine lacks what one needs.
    """
    task = inputs.task
    prompts = (*task.splits.train, *task.splits.select, *task.splits.test)

    # A study that is not there yet gets its folder later (keep_judges).
    folder = folder_of(study_path) if study_path is not None and study_path.is_dir() else None
    return with_rewards(task, RewardPlace(inputs.look_up, prompts, device, folder).make)


def _prompt_limit(spec: StudySpec, loaded: LoadedModel) -> int | None:
    own = getattr(loaded.model.config.get_text_config(), "max_position_embeddings", None)
    room = None if own is None else int(own) - spec.trainer.max_new_tokens
    if room is not None and room < 1:
        raise SpecError(
            f"trainer.max_new_tokens: {spec.trainer.max_new_tokens} leaves no room for a prompt "
            f"(the model has {own} positions)"
        )
    asked = spec.trainer.max_prompt_tokens
    return room if asked is None else asked if room is None else min(asked, room)


def _remembering(encoder: PromptEncoder, *known: EncodedPrompts):
    """Encode without a second tokenisation of prompts that were encoded before."""
    ids = {p.id: list(row) for part in known for p, row in zip(part.prompts, part.ids, strict=True)}

    def encode(prompt: Prompt) -> list[int]:
        return ids[prompt.id] if prompt.id in ids else encoder(prompt)

    return encode


def reference_scale(ground: Ground, spec: StudySpec, study_path: Path | None) -> RewardScale:
    """sigma_R: read from the study's reference.json, else measured; :func:`keep_scale` writes it.

    Raises:
        SpecError: the proxy does not vary under the reference, so there is nothing to learn from.
    """
    kept = None if study_path is None else kept_scale(study_path)
    if kept is not None:
        return kept
    data = ground.data
    golds = {"task.gold": data.gold, **{f"task.golds.{n}": g for n, g in data.golds.items()}}
    for field in _checked_again(spec):
        golds.pop(field, None)
    scale = measure_scale(ground.loaded, data.train, data.proxy, spec.trainer, spec.seed, golds)
    if scale.sigma <= 0:
        raise SpecError(
            "task.proxy: gives every completion of a prompt the same score under the reference "
            f"(sigma_R = 0 over {scale.num_groups} groups), so no policy gradient could ever arise"
        )
    return scale


def _checked_again(spec: StudySpec) -> frozenset[str]:
    """Golds that are the proxy's own verifier: the spec's doubts say so, and no agreement betrays them."""
    task = spec.task
    if not isinstance(task, TaskSpec):
        return frozenset()
    golds = {"task.gold": task.gold, **{f"task.golds.{n}": g for n, g in task.golds.items()}}
    return checked_again(task.proxy, golds)


def keep_scale(study_path: Path, scale: RewardScale) -> None:
    """Write sigma_R into the study, once."""
    path = study_path / REFERENCE
    if kept_scale(study_path) is None:
        facts = asdict(scale)
        sigma, std = facts.pop("sigma"), facts.pop("std")
        write_json(path, {"schema": 1, "sigma_r": sigma, "std_r": std, **facts})


def kept_scale(study_path: Path) -> RewardScale | None:
    """sigma_R of a study; none where it was never measured, or by a version that did not measure ``std_r``."""
    path = study_path / REFERENCE
    kept = read_json(path) if path.is_file() else {}
    if "std_r" not in kept:
        return None
    return RewardScale(
        sigma=kept["sigma_r"],
        std=kept["std_r"],
        mean=kept["mean"],
        num_groups=kept["num_groups"],
        mean_tokens=kept["mean_tokens"],
    )


def build_bank(
    ground: Ground, spec: StudySpec, scale: RewardScale, slots: int | None = None
) -> Bank:
    """Put ``slots`` on the base, by default as many as one process takes."""
    is_cpu = ground.loaded.device.type == "cpu"
    settings = BankSettings(
        trainer=spec.trainer,
        evaluate=spec.evaluate,
        control=spec.control,
        kl_unit=spec.kl_unit,
        beta_unit=spec.beta_unit,
        scale=scale,
        compact=is_cpu,
        keep_all=ground.judged_on == "test",
    )
    if slots is None:
        slots = num_slots(spec, ground)
    return Bank(ground.loaded, ground.data, settings, spec.model, slots)


def num_slots(spec: StudySpec, ground: Ground) -> int:
    """Trials at once in one process: as asked; else what a CUDA device holds, and one on a CPU.

    Measured on 2 cores with the kitchen model, seconds per trial-step at K = 1, 2, 4, 8: .21, .16,
    .16, .16. One is the default there, since only then a resumed trial repeats the undisturbed
    one to the last bit (matrix products round by the shape of the whole batch).
    """
    if spec.model.finetune == "full":
        return 1
    asked = spec.budget.slots
    return min(
        asked if isinstance(asked, int) else slots_of_device(spec, ground), spec.budget.trials
    )


def slots_of_device(spec: StudySpec, ground: Ground) -> int:
    """Trials that fit and pay on the base's device."""
    loaded, data = ground.loaded, ground.data
    if loaded.device.type != "cuda":
        return 1
    import torch

    free_bytes, _ = torch.cuda.mem_get_info(loaded.device)
    parameters = list(loaded.model.parameters())
    base_bytes = sum(p.numel() * p.element_size() for p in parameters)
    config = loaded.model.config.get_text_config()
    heads = config.num_attention_heads
    width = (getattr(config, "num_key_value_heads", None) or heads) * (config.hidden_size // heads)
    tokens = spec.trainer.max_new_tokens + max(data.train.width, data.select.width)
    cache_bytes = 2 * config.num_hidden_layers * width * tokens * parameters[0].element_size()
    return device_slots(CUDA_SLOTS, free_bytes, base_bytes, spec.trainer.rows * cache_bytes)
