"""What a configuration of another trainer sets, in kltune's words, and as the `Winner` that an export is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import ValidationError

from kltune.adopt.given import printable
from kltune.adopt.keys import Keys
from kltune.errors import SpecError
from kltune.export.setting import Measured, Source, Winner
from kltune.spec.control import ControlSpec
from kltune.spec.guards import GuardsSpec
from kltune.spec.penalty import Penalty
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import BetaUnit, ControllerKind, KLUnit, TrialSpec
from kltune.units import advantage_scale, baseline_share, in_advantage_units

_CUT: Final = frozenset({"prompts", "group_size", "minibatches"})
"""Fields that say into how many updates a rollout is cut."""


@dataclass(frozen=True, slots=True)
class KLPart:
    """Where the KL stands, what it costs, and what moves that."""

    penalty: Penalty | None = None
    """None: no KL."""
    beta: float = 0.0
    beta_in: Literal["advantage", "reward"] = "advantage"
    """advantage: beside the algorithm's own advantages; reward: raw reward per nat of sequence KL."""
    target_token: float | None = None
    """Set point of a proportional controller, nats per token; None: beta is fixed."""
    horizon: float | None = None
    """Sequences."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A configuration that was read."""

    framework: str
    version: str
    name: str
    """The file's."""
    kl: KLPart
    trainer: Mapping[str, Any]
    """Fields of the trainer section but for steps, prompts and group_size."""
    prompts: int
    """Per step."""
    group: int
    """Completions per prompt; may be 1 where nothing compares within a group."""
    steps: int | None
    lora_rank: int | None
    base: str
    sources: Mapping[str, str]
    """Field of the trainer section (or kl, beta, ...) and the key that it came from."""
    defaults: Mapping[str, Any]
    """Keys that were left to the release, with its values."""
    unknown: tuple[str, ...]
    """Keys that the release does not have."""
    unread: tuple[str, ...]
    """Keys that say nothing that is carried over."""
    warnings: tuple[str, ...] = field(default=())
    unclear: Mapping[str, str] = field(default_factory=dict[str, str])
    """Field that the file sets to what is no plain value (a stand-in is in its place): key and text."""
    where: str = ""
    """The file's path, for messages."""

    @property
    def rows(self) -> int:
        """Completions per step."""
        return self.prompts * self.group

    def trainer_spec(self) -> TrainerSpec:
        """As a trainer section; a group of 1 becomes one group of all, since the algorithm compares nothing in it.

        Raises:
            SpecError: kltune has no such trainer.
        """
        group = self.group if self.group > 1 else self.rows
        shapes = {"steps": self.steps or 1, "prompts": self.rows // group, "group_size": group}
        try:
            return TrainerSpec.model_validate({**self.trainer, **shapes})
        except ValidationError as error:
            words = "; ".join(
                f"{self._named('.'.join(map(str, one['loc'])))}{one['msg'].removeprefix('Value error, ')}"
                for one in error.errors(include_url=False)
            )
            raise SpecError(
                f"{self.where or self.name}: kltune has no such trainer: {words}"
            ) from None

    def winner(self, sigma: float | None, mean_tokens: float) -> Winner:
        """As if a study had found it.

        ``sigma``: what advantages are divided by, raw reward; ``mean_tokens``: per completion.

        Raises:
            SpecError: sigma is needed to say what beta is, or there is no such trainer.
        """
        trainer, kl = self.trainer_spec(), self.kl
        is_steered = kl.target_token is not None
        setting = TrialSpec(
            beta=self._native(trainer, sigma),
            penalty=kl.penalty,
            controller=ControllerKind.PROPORTIONAL if is_steered else ControllerKind.FIXED,
            target_kl=kl.target_token,
            horizon=kl.horizon if is_steered else None,
            learning_rate=trainer.learning_rate,
        )
        return Winner(
            source=Source(
                study=self.name,
                trial=0,
                origin="",
                is_recommended=True,
                rivals=0,
                base=self.base,
                lora_rank=self.lora_rank,
                read_from=f"{self.framework} {self.version}",
            ),
            setting=setting,
            trainer=trainer,
            control=ControlSpec(),
            beta_unit=BetaUnit.NATIVE,
            kl_unit=KLUnit.TOKEN,
            measured=Measured(sigma, sigma, mean_tokens, kl.target_token, None, None, None),
            stop=None,
            gold=None,
            guards=GuardsSpec(),
            kl_guard=None,
            kl_limit=None,
            confirmation="",
        )

    def _native(self, trainer: TrainerSpec, sigma: float | None) -> float:
        """Beta in kltune's native unit: raw reward for a KL in the reward, else the coefficient."""
        kl = self.kl
        if kl.penalty is None:
            return 0.0
        if not kl.penalty.in_reward or kl.beta_in == "reward":
            return kl.beta
        by = advantage_scale(trainer.algorithm, 1.0, 1.0)
        if by is not None:
            if sigma is None:
                raise SpecError("--sigma: needed")
            by = sigma
        share = baseline_share(trainer.algorithm, trainer.group_size)
        return kl.beta / in_advantage_units(share, by)

    def _named(self, path: str) -> str:
        key = self.sources.get(path)
        return "" if key is None else f"{key}: "


def reading(
    keys: Keys, kl: KLPart, trainer: Mapping[str, Any], sizes: Mapping[str, Any], *, base: str
) -> Reading:
    """Put a reading together; ``sizes``: prompts, group, steps, lora_rank."""
    unknown, unread = keys.passed_over()
    return Reading(
        framework=keys.listed.framework,
        version=keys.version,
        name=printable(keys.given.name),
        kl=kl,
        trainer={name: value for name, value in trainer.items() if value is not None},
        prompts=sizes["prompts"],
        group=sizes["group"],
        steps=sizes["steps"],
        lora_rank=sizes["lora_rank"],
        base=printable(base),
        sources=dict(keys.sources),
        defaults=dict(keys.defaults),
        unknown=tuple(map(printable, unknown)),
        unread=tuple(map(printable, unread)),
        warnings=tuple(map(printable, keys.warnings)),
        unclear={name: printable(text) for name, text in keys.unclear.items()},
        where=printable(keys.given.where),
    )


def above_zero(keys: Keys, key: str, value: float | None) -> Any:
    """The same value.

    Raises:
        SpecError: it is absent, or not above 0.
    """
    if value is None or value <= 0:
        raise SpecError(f"{keys.given.where}: {key}: a number above 0 is needed (got {value})")
    return value


def minibatches(keys: Keys, whole: int, part: int, names: tuple[str, str]) -> int:
    """Updates per pass over a rollout.

    Raises:
        SpecError: the parts don't fill the whole.
    """
    open_text = [t for name, t in keys.unclear.items() if name.partition(".")[0] in _CUT]
    if open_text:
        keys.unclear.setdefault("minibatches", open_text[0])
        return 1
    if part <= 0 or whole % part:
        if names[1] in keys.defaults:
            keys.warnings.append(
                f"{names[1]}: the default of {keys.listed.framework} {keys.version} ({part}) does not divide {names[0]} "
                f"({whole}): read as one update per rollout"
            )
            return 1
        open_ones = [name for name in names[0].split(" x ") if name in keys.defaults]
        hint = f" ({', '.join(open_ones)} by default: is it set elsewhere?)" if open_ones else ""
        raise SpecError(
            f"{keys.given.where}: {names[0]} ({whole}{hint}) is no multiple of {names[1]} ({part}), so a rollout is not "
            "cut into equal updates"
        )
    return whole // part


def high_clip(low: float | None, high: float | None) -> float | None:
    """The upper clip, where it differs."""
    return None if high is None or high == low else high


def bound(value: float | None, high: float | None, *, none_from: float = 1e5) -> float | None:
    """A dual clip; one that nothing reaches, or that lies within the clip, is none."""
    if value is None or value >= none_from or (high is not None and value <= 1 + high):
        return None
    return value
