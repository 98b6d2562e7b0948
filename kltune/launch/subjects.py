"""An audit's request in, the pair of policies that it means out: loaded, and ready to be probed.

The heavy half of ``kltune audit``: importing this loads torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kltune.audit.gather import Question
from kltune.audit.gram import MIN_FOLDS
from kltune.errors import RunError, SpecError
from kltune.launch.assemble import build_bank, find_inputs, load_ground, reference_scale
from kltune.launch.audit import DEFAULT_STEPS, AuditRequest, Kind, Subject
from kltune.launch.saying import say
from kltune.metrics.jsonl import read_json
from kltune.metrics.record import RewardScale
from kltune.spec.control import ControlSpec
from kltune.spec.load import LoadedSpec, from_resolved, load_spec
from kltune.spec.model import ModelSpec
from kltune.spec.penalty import Penalty
from kltune.spec.study import EvaluateSpec
from kltune.spec.task import SplitsSpec
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.study.sampler import planned_trials
from kltune.study.space import setting_of
from kltune.tasks.prompts import load_prompts
from kltune.tasks.protocol import Sample
from kltune.trainer.bank import Bank
from kltune.trainer.data import EncodedPrompts, TaskData, encode_all
from kltune.trainer.encode import PromptEncoder
from kltune.trainer.model import LoadedModel, load_model
from kltune.trainer.parts import BankParts, BankSettings
from kltune.trainer.probe import ProbeSettings, coefficient, is_enumerated, num_blocks, probe
from kltune.trainer.sources import resolve_model
from kltune.trainer.weights import load_weights
from kltune.trial.record import read_trial
from kltune.trial.words import origin_words, setting_short

SAMPLES = 1024
"""Completions where none are asked for."""

NUM_BLOCKS = 16
"""Independent blocks that they are divided into, if they are enough."""

MAX_GIB = 8.0
"""Gradients that an audit would have to hold at least; above this it is refused."""


def find_subject(request: AuditRequest, kind: Kind) -> Subject:
    """Load what the request names.

    Raises:
        SpecError: a spec, a folder or prompts that can't be used.
        RunError: the policy diverged, or a checkpoint can't be read.
        EnvironmentMissingError: this machine lacks what is needed.
    """
    match kind:
        case "spec":
            return _of_spec(request)
        case "trial":
            return _of_trial(request)
        case "models":
            return _of_models(request)


def _of_spec(request: AuditRequest) -> Subject:
    given = ("budget.slots=1", *(() if request.seed is None else (f"seed={request.seed}",)))
    loaded = load_spec(request.target, given)
    spec, steps = loaded.spec, DEFAULT_STEPS if request.steps is None else request.steps
    bank, scale = _bank(loaded, None)
    bank.admit(0, 0, setting_of({"beta": 0.0}, spec), None)
    say(f"training {steps} steps with beta 0 ...")
    for step in range(1, steps + 1):
        (metrics,) = bank.train_step()
        if not metrics.is_finite:
            raise RunError(f"{spec.name}: step {step} was not finite; there is no policy to audit")
    planned = [p for p in planned_trials(spec, scale) if p.setting.beta > 0]
    setting = planned[0].setting if planned else None
    origin = origin_words(planned[0].origin) if planned else ""
    about = _About(
        name=spec.name,
        policy=f"{spec.name} after {steps} steps with beta 0",
        reference="its start",
        prompts="train prompts",
        setting=setting,
        origin=origin,
    )
    return _subject(request, bank.parts, about, spec.seed)


def _of_trial(request: AuditRequest) -> Subject:
    assert request.trial is not None
    study, number = request.target, request.trial
    spec = from_resolved(read_json(study / "resolved.json"))
    spec = spec.model_copy(update={"budget": spec.budget.model_copy(update={"slots": 1})})
    record = read_trial(study / "trials" / f"{number:05d}")
    which = request.checkpoint or "best"
    folder = record.folder / "checkpoints" / which
    if not folder.is_dir():
        there = sorted(path.name for path in folder.parent.glob("[bl]*t")) or ["none"]
        gone = "; the last one goes when a trial has ended" if which == "last" else ""
        raise SpecError(
            f"--checkpoint: trial {number} has no {which} checkpoint (it has: {', '.join(there)}{gone})"
        )
    bank, _ = _bank(LoadedSpec(spec, "", study / "spec.yaml"), study)
    if which == "last":
        step = bank.admit(0, number, record.setting, folder)
    else:
        bank.admit(0, number, record.setting, None)
        step = load_weights(folder, 0, bank.parts.stack)
    about = _About(
        name=f"{spec.name}-trial-{number}",
        policy=f"trial {number} of {spec.name} at step {step} ({which} checkpoint)",
        reference="its start",
        prompts="train prompts",
        setting=record.setting,
        origin=setting_short(record.setting, spec.kl_unit),
    )
    notes = ()
    if which == "best" and spec.trainer.reference.every is not None:
        notes = ("the best checkpoint keeps no moving reference: compared with the start",)
    return _subject(request, bank.parts, about, spec.seed, notes=notes)


def _of_models(request: AuditRequest) -> Subject:
    assert request.reference is not None
    assert request.prompts is not None
    splits = load_prompts(request.prompts, SplitsSpec())
    trainer = TrainerSpec(steps=1)
    policy = _model(request.target, trainer)
    reference = _model(request.reference, trainer)
    if policy.tokenizer.get_vocab() != reference.tokenizer.get_vocab() or (
        policy.vocabulary != reference.vocabulary
    ):
        raise SpecError(
            f"--reference: {request.reference} has another vocabulary than {request.target}; "
            "their log-probs can't be compared"
        )
    model = ModelSpec(base=str(request.target))
    prompts = encode_all(
        PromptEncoder(policy.tokenizer, model), (*splits.train, *splits.select, *splits.test)
    )
    parts = Bank(policy, _unscored(prompts), _settings(policy, trainer), model, 1).parts
    parts.stack.reset(0, request.seed or 0)
    about = _About(
        name=request.target.resolve().name,
        policy=str(request.target),
        reference=str(request.reference),
        prompts=request.prompts.name,
        setting=None,
        origin="",
    )
    notes = (
        f"gradients are those of fresh adapters of rank {model.rank} on the policy; "
        f"up to {trainer.max_new_tokens} tokens per completion",
        "there is no reward, so no policy gradient to weigh the KL against",
    )
    return _subject(request, parts, about, 0, notes=notes, reference=reference)


@dataclass(frozen=True, slots=True)
class _About:
    """What a pair is called, and whose beta is looked at."""

    name: str
    policy: str
    reference: str
    prompts: str
    setting: TrialSpec | None
    origin: str


def _bank(loaded: LoadedSpec, study: Path | None) -> tuple[Bank, RewardScale]:
    inputs = find_inputs(loaded)
    say("loading the model and getting the proxy ready ...")
    ground = load_ground(loaded.spec, inputs, study)
    scale = reference_scale(ground, loaded.spec, study)
    return build_bank(ground, loaded.spec, scale), scale


def _model(folder: Path, trainer: TrainerSpec) -> LoadedModel:
    spec = ModelSpec(base=str(folder))
    source = resolve_model(spec.base, None, lambda text: Path(text).absolute())
    return load_model(spec, source, trainer.device, trainer.precision)


@dataclass(frozen=True, slots=True)
class _NoReward:
    """Two models come without a reward."""

    name: str = "none"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return [math.nan] * len(samples)


def _unscored(prompts: EncodedPrompts) -> TaskData:
    return TaskData(prompts, prompts, _NoReward(), _NoReward())


def _settings(loaded: LoadedModel, trainer: TrainerSpec) -> BankSettings:
    return BankSettings(
        trainer=trainer,
        evaluate=EvaluateSpec(),
        control=ControlSpec(),
        kl_unit=KLUnit.TOKEN,
        beta_unit=BetaUnit.REWARD,
        scale=RewardScale(sigma=1.0, std=1.0, mean=0.0, num_groups=1, mean_tokens=1.0),
        compact=loaded.device.type == "cpu",
    )


def _subject(
    request: AuditRequest,
    parts: BankParts,
    about: _About,
    seed: int,
    *,
    notes: tuple[str, ...] = (),
    reference: LoadedModel | None = None,
) -> Subject:
    penalties = tuple(Penalty)
    _check_memory(parts, len(penalties) + 3)
    trainer, prompts = parts.settings.trainer, parts.data.train
    blocks, per_block = _blocks(request.samples, trainer.group_size)
    settings = ProbeSettings(
        num_blocks=blocks,
        prompts_per_block=per_block,
        seed=seed if request.seed is None else request.seed,
        has_reward=reference is None,
        reference=reference,
    )
    beta = 0.0 if about.setting is None else about.setting.beta
    question = Question(
        policy=about.policy,
        reference=about.reference,
        prompts=about.prompts,
        temperature=trainer.temperature,
        num_blocks=num_blocks(parts, prompts, settings),
        is_enumerated=is_enumerated(parts),
        algorithm=trainer.algorithm,
        setting=about.origin,
        beta=beta,
        coefficient=0.0 if about.setting is None else coefficient(parts, about.setting),
        notes=(*notes, *_samples_notes(request, parts, blocks * per_block)),
    )
    return Subject(about.name, question, probe(parts, 0, prompts, penalties, settings))


def _blocks(samples: int | None, group_size: int) -> tuple[int, int]:
    """Blocks, and prompts in each."""
    wanted = SAMPLES if samples is None else samples
    per_block = max(1, wanted // (NUM_BLOCKS * group_size))
    return max(MIN_FOLDS, wanted // (per_block * group_size)), per_block


def _samples_notes(request: AuditRequest, parts: BankParts, groups: int) -> tuple[str, ...]:
    """Where another number of completions is looked at than was asked for."""
    wanted, size = request.samples, parts.settings.trainer.group_size
    if wanted is None or wanted == groups * size:
        return ()
    if is_enumerated(parts):
        return ("--samples has no use here: every completion is looked at",)
    least = f"at least {MIN_FOLDS} blocks" if wanted < groups * size else "blocks"
    return (
        f"--samples {wanted} became {groups * size}: {least} of whole groups of {size} completions",
    )


def _check_memory(parts: BankParts, labels: int) -> None:
    needed = MIN_FOLDS * labels * parts.stack.num_parameters * 4 / 2**30
    if needed > MAX_GIB:
        raise SpecError(
            f"an audit of {parts.stack.num_parameters:,} trainable parameters would hold {needed:.0f} GiB "
            f"of gradients (at most {MAX_GIB:.0f}); use model.finetune: lora or a lower model.rank"
        )
