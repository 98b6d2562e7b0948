"""A trainer's configuration in; the lines of a spec that it settles, its own setting as the first baseline, out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

from kltune.adopt.convert import read_config, remarks
from kltune.adopt.reading import Reading
from kltune.scaffold.draft import Plain, SpecDraft
from kltune.scaffold.start import RIVALS
from kltune.spec.trainer import TrainerSpec

PROMPTS: Final = 8
"""Prompts per step of a drafted study, as `kltune init` has it: many short trials, not one large run."""

_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "algorithm": "its own",
        "aggregation": "how token losses become one number",
        "importance": "ratio and clip per token, or of the whole completion",
        "epochs": "passes over each rollout",
        "minibatches": "updates per pass",
        "group_size": "completions per prompt",
        "max_new_tokens": "tokens per completion at most",
        "temperature": "of sampling and of all log-probs",
        "learning_rate": "AdamW step size; that of the large run, so look at it",
        "max_grad_norm": "clip of the gradient's norm",
        "weight_decay": "of AdamW",
        "clip_ratio": "PPO's clip",
        "clip_ratio_high": "its upper side",
        "clip_ratio_max": "dual clip",
        "entropy_bonus": "advantage units per nat of entropy",
        "critic.gamma": "discount per token",
        "critic.gae_lambda": "lambda of the generalised advantages",
        "critic.learning_rate": "AdamW step size of the critic",
        "critic.value_clip": "clip of the value loss",
        "critic.whiten": "advantages are divided by their standard deviation",
        "kl.credit": "each token pays for its own KL and the later ones'",
        "kl.clip": "clip of a token's KL, nats",
        "reward.clip": "clip of the score",
        "reference.every": "steps between refreshes of the reference",
        "reference.mixture": "the policy's share in it",
    }
)
"""Fields of the trainer section that are carried, in the file's order, and what each is."""


def draft_of(framework: str, path: Path, version: str | None = None) -> SpecDraft:
    """Only what the configuration says; all else of the spec is the caller's.

    Raises:
        SpecError: the file can't be read, or sets what kltune has no words for.
    """
    return draft_from(read_config(framework, path, version))


def draft_from(found: Reading) -> SpecDraft:
    """The same for one that was read."""
    spec = found.trainer_spec()
    draft = SpecDraft(warnings=tuple(remarks(found)))
    if not found.base.startswith("the configuration's"):
        draft = draft.put("model.base", found.base, f"the model that {found.name} trains")
    if found.lora_rank is not None:
        draft = draft.put("model.rank", found.lora_rank, f"LoRA rank of {found.name}")
    elif found.framework == "trl":
        draft = draft.warn(
            f"whether {found.name} trains adapters or all weights is not in its configuration: another learning rate suits each"
        )
    else:
        draft = draft.warn(
            f"{found.name} trains all weights; kltune trains adapters unless you set model.finetune: full (one trial at a time): "
            "another learning rate suits adapters, often ten times the one of all weights"
        )
    draft = _trainer(draft, found, spec)
    return _baseline(draft, found)


def _trainer(draft: SpecDraft, found: Reading, spec: TrainerSpec) -> SpecDraft:
    flat = _flat({**found.trainer, "group_size": found.group})
    if found.group < 2:
        del flat["group_size"]
        draft = draft.warn(
            f"{found.name} has one completion per prompt; kltune's trainer needs at least 2, so group_size is not carried"
        )
    group = found.group if found.group > 1 else PROMPTS
    if PROMPTS * group % spec.minibatches:
        flat.pop("minibatches", None)
        draft = draft.warn(
            f"{found.name} cuts a rollout into {spec.minibatches} updates; {PROMPTS} prompts of {group} completions can't be cut "
            "so, so trainer.minibatches is not carried"
        )
    for name, words in _FIELDS.items():
        value = None if name in found.unclear else flat.get(name)
        if value is None or _is_plain_default(name, value):
            continue
        key = found.sources.get(name)
        source = f"{words}: {key}" if key else f"{words}: as {found.framework} has it"
        draft = draft.put(f"trainer.{name}", cast("Plain", value), source)
    return draft


def _baseline(draft: SpecDraft, found: Reading) -> SpecDraft:
    kl, others = found.kl, RIVALS.get(str(found.trainer["algorithm"]), ())
    if kl.penalty is None:
        return draft.warn(
            f"{found.name} has no KL: the beta = 0 arm of the search (search.beta.zero) is that very setting"
        )
    written: dict[str, Plain] = {
        "name": f"my-{found.framework}",
        "penalty": kl.penalty.value,
        "beta": kl.beta,
        "beta_in": kl.beta_in,
    }
    words = f"first your own: {found.sources.get('beta', 'beta')} of {found.name}"
    if kl.target_token is not None and kl.horizon is not None:
        group = found.group if found.group > 1 else PROMPTS
        written |= {
            "controller": "proportional",
            "target_kl_token": kl.target_token,
            "horizon": kl.horizon * PROMPTS * group / found.rows,
        }
        words += (
            f"; its horizon of {kl.horizon:g} sequences x {PROMPTS * group} / {found.rows} completions per step: the "
            "same gain per step"
        )
    draft = draft.put("baselines", [written, *others], f"{words}; then published recipes")
    refusal = kl.penalty.nature.refusal
    if refusal is not None:
        draft = draft.put("allow_biased", True, f"for your own setting: {refusal}")
        draft = draft.warn(f"{found.name}: {refusal}")
    return draft


def _flat(section: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in section.items():
        if isinstance(value, Mapping):
            flat |= _flat(cast("Mapping[str, Any]", value), f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = value
    return flat


def _is_plain_default(name: str, value: object) -> bool:
    """Whether a line would only repeat what a spec says without it."""
    default = TrainerSpec.model_fields.get(name)
    always = (
        "algorithm",
        "group_size",
        "max_new_tokens",
        "learning_rate",
        "clip_ratio",
        "temperature",
    )
    return name not in always and default is not None and value == default.default
