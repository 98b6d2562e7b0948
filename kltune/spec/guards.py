"""What ends a trial early or warns of it: one section per guard, every threshold with its unit.

A guard may be given as a section, or by its action alone: ``stalled: off``, ``entropy: warn``. Its other
fields then keep their defaults. What each guard looks at is in `kltune.symptoms`.

A step that is not finite always ends its trial as ``diverged`` (design.md §3): there is nothing to switch.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from kltune.spec.closed import Closed
from kltune.spec.duration import seconds

Act = Literal["stop", "warn", "off"]


class PatientSpec(Closed):
    """When a guard judges."""

    patience: PositiveInt = 2
    """Evaluations in a row that must show it (steps for guards that judge steps)."""

    warmup: NonNegativeInt = 0
    """Steps at the start that are not judged."""

    @model_validator(mode="before")
    @classmethod
    def _action_alone(cls, value: Any) -> Any:
        return {"action": value} if isinstance(value, str) else value


class GuardSpec(PatientSpec):
    """What every guard but gold_drop has."""

    action: Act = "warn"
    """End the trial, say so and go on, or look away. A warning never changes training."""


class KLGuardSpec(GuardSpec):
    """KL above a limit: the trial is beyond what may be chosen."""

    action: Act = "stop"

    limit: PositiveFloat | None = None
    """In ``kl_unit``; none: ``objective.kl_limit``."""

    patience: PositiveInt = 3
    """Steps, or evaluations, in a row above the limit."""

    over: Literal["steps", "evaluations"] = "steps"
    """Whose KL counts: the training rollouts', or the select prompts'."""


class JumpGuardSpec(GuardSpec):
    """KL that jumps within one step and stays there; judged after every step."""

    action: Act = "stop"

    patience: PositiveInt = 2
    """Steps in a row above, the jump's included: a spike that falls back is forgiven."""

    rise_token: PositiveFloat = 1.0
    """Nats per token by which the KL must exceed the median of the steps before."""

    factor: float = Field(default=4.0, ge=1)
    """And the multiple of that median."""

    window: PositiveInt = 5
    """Steps before the jump that it is compared with."""


class NegativeKLGuardSpec(GuardSpec):
    """A mean log-ratio (k1) clearly below 0, judged after every step.

    Its expectation is a KL, so it is no progress but a fault of the set-up: the trial counts as failed.
    """

    action: Act = "stop"

    patience: PositiveInt = 2
    """Steps in a row."""

    sigmas: PositiveFloat = 4.0
    """Standard errors (over completions) below 0."""

    floor_seq: PositiveFloat = 0.05
    """Nats per sequence below 0 at least: less is rounding."""

    floor_token: PositiveFloat = 0.1
    """Nats per token below 0 at least, where no standard error is known (one completion)."""


class StalledGuardSpec(GuardSpec):
    """KL near 0 and a flat proxy: nothing is learned."""

    action: Act = "stop"
    warmup: NonNegativeInt = 20

    kl_seq: PositiveFloat = 0.1
    """Nats per sequence; the mean KL of ``window`` steps is below."""

    sigmas: PositiveFloat = 2.0
    """The proxy is flat where it rose by fewer standard errors, first ``window`` steps against last."""

    window: int = Field(default=10, ge=3)
    """Steps that are averaged."""


class PseudoExplosionGuardSpec(GuardSpec):
    """KL and the scale of the advantages rise together: a matter of normalisation, not of beta."""

    warmup: NonNegativeInt = 10

    factor: float = Field(default=3.0, gt=1)
    """The advantages' standard deviation is that multiple of its start."""

    kl_token: PositiveFloat = 0.05
    """Nats per token that the KL must have reached, and be rising."""

    window: PositiveInt = 5
    """Steps that are averaged."""


class GoldDropGuardSpec(PatientSpec):
    """Gold significantly below the best earlier allowed checkpoint, at no less KL: past its peak.

    Under steady rates of learning it is rare by luck; a run that a late peak would still follow loses that peak.
    """

    action: Act | None = None
    """None: stop under objective gold_peak, warn under the others, whose value an early end would change;
    under gold_final it can't stop."""

    kl_factor: float = Field(default=1.0, ge=1)
    """Multiple of that checkpoint's KL that must be reached; above 1 a fall at about the same KL is let pass."""

    chance: float = Field(default=0.01, gt=0, lt=0.5)
    """Probability of as large a drop by chance: paired over prompts, one-sided, corrected for the number of
    checkpoints that the best was chosen from."""

    def acts(self, metric: str) -> Act:
        """What it does under ``objective.metric``."""
        return self.action or ("stop" if metric == "gold_peak" else "warn")


class EntropyGuardSpec(GuardSpec):
    """Entropy collapse: the policy has almost stopped to sample."""

    warmup: NonNegativeInt = 10

    share: float = Field(default=0.2, gt=0, lt=1)
    """Of the entropy at the start (nats per token), below which it has collapsed."""

    window: PositiveInt = 5
    """Steps that are averaged."""


class RepetitionGuardSpec(GuardSpec):
    """Completions that repeat themselves."""

    warmup: NonNegativeInt = 10

    share: float = Field(default=0.2, gt=0, lt=1)
    """Of the trigrams that the same completion had before."""

    rise: NonNegativeFloat = 0.1
    """By which that share must exceed the start's."""

    window: PositiveInt = 5
    """Steps that are averaged."""


class LengthGuardSpec(GuardSpec):
    """Mean length that collapses or grows."""

    warmup: NonNegativeInt = 10

    collapse: float = Field(default=0.4, gt=0, lt=1)
    """Share of the mean length at the start, below which it has collapsed."""

    growth: float = Field(default=2.0, gt=1)
    """Multiple of the mean length at the start, above which it has grown."""

    window: PositiveInt = 5
    """Steps that are averaged."""


class TruncationGuardSpec(GuardSpec):
    """Completions that are cut at the length limit."""

    warmup: NonNegativeInt = 10

    share: float = Field(default=0.4, gt=0, lt=1)
    """Of the completions."""

    rise: NonNegativeFloat = 0.2
    """By which that share must exceed the start's."""

    window: PositiveInt = 5
    """Steps that are averaged."""


class LocalKLGuardSpec(GuardSpec):
    """KL that breaks at some places while its mean looks fine."""

    warmup: NonNegativeInt = 5

    mean_token: PositiveFloat = 1.0
    """Nats per token; the mean looks fine below."""

    bucket_token: PositiveFloat = 3.0
    """Nats per token that the mean at some position must exceed."""

    p99_token: PositiveFloat = 10.0
    """Or: nats that one token in a hundred exceeds."""

    ratio: float = Field(default=8.0, gt=1)
    """And the multiple of the mean that either must exceed."""

    window: PositiveInt = 5
    """Steps that are averaged."""


class ProxySpreadGuardSpec(GuardSpec):
    """Proxy that no longer tells the completions of a group apart."""

    warmup: NonNegativeInt = 5

    zero_groups: float = Field(default=0.9, gt=0, le=1)
    """Share of the groups whose completions all score the same, at which the spread is gone."""

    share: float = Field(default=0.05, gt=0, lt=1)
    """Or: share of the spread at the start (standard deviation of the proxy), below which it is gone."""

    window: PositiveInt = 5
    """Steps that are averaged."""


class GuardsSpec(Closed):
    """Rules that end a trial early or warn of it, with a named reason."""

    kl: KLGuardSpec | None = None
    """KL limit; none: ``objective.kl_limit`` for 3 steps where that is given."""

    jump: JumpGuardSpec = JumpGuardSpec()
    negative_kl: NegativeKLGuardSpec = NegativeKLGuardSpec()
    stalled: StalledGuardSpec = StalledGuardSpec()
    pseudo_explosion: PseudoExplosionGuardSpec = PseudoExplosionGuardSpec()
    gold_drop: GoldDropGuardSpec = GoldDropGuardSpec()
    entropy: EntropyGuardSpec = EntropyGuardSpec()
    repetition: RepetitionGuardSpec = RepetitionGuardSpec()
    length: LengthGuardSpec = LengthGuardSpec()
    truncation: TruncationGuardSpec = TruncationGuardSpec()
    local_kl: LocalKLGuardSpec = LocalKLGuardSpec()
    proxy_spread: ProxySpreadGuardSpec = ProxySpreadGuardSpec()

    wall: float | None = Field(default=None, gt=0)
    """Wall clock of one trial in seconds (YAML: 90, 90s, 15m, 2h); none: no limit."""

    @model_validator(mode="before")
    @classmethod
    def _is_a_section(cls, value: Any) -> Any:
        if isinstance(value, str | bool):
            names = ", ".join(name for name in cls.model_fields if name != "wall")
            raise ValueError(
                f"one action each, like {{stalled: off}} (got {value!r}); guards: {names}"
            )
        return value

    @field_validator("wall", mode="before")
    @classmethod
    def _duration(cls, value: Any) -> Any:
        return seconds(value)
