"""What all trials of a bank share: the algorithm and everything that changes shapes."""

from __future__ import annotations

import re
from typing import Any, Literal, Self, TypeGuard, cast

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from kltune.spec.algorithm import (
    OWN_AGGREGATION,
    Aggregation,
    Algorithm,
    Credit,
    CriticSpec,
    KLSpec,
    ReferenceSpec,
    RewardSpec,
)
from kltune.spec.closed import Closed, FieldProblems


class TrainerSpec(Closed):
    """Shapes and algorithm of one step: prompts x group_size completions, and what is learned from them."""

    algorithm: Algorithm = "grpo"
    """Policy-gradient algorithm."""

    aggregation: Aggregation | None = None
    """How token losses become one number; none: the algorithm's own."""

    importance: Literal["token", "sequence"] = "token"
    """Importance ratio and its clip per token, or of the whole completion (TRL's RLOO)."""

    epochs: PositiveInt = 1
    """Passes over each rollout."""

    minibatches: PositiveInt = 1
    """Optimiser updates per pass; must divide the completions per step."""

    steps: PositiveInt = Field(le=10_000_000)
    """Steps of a full trial."""

    prompts: PositiveInt = 8
    """Prompts per step."""

    group_size: int = Field(default=8, ge=2)
    """Completions per prompt; at least 2, since the advantage compares within the group."""

    completions: PositiveInt | None = None
    """Completions per step, instead of ``prompts``; must be a multiple of group_size."""

    max_new_tokens: PositiveInt = 32
    """Length limit of a completion in tokens."""

    max_prompt_tokens: PositiveInt | None = None
    """Prompts longer than this are refused or dropped before the start, never cut; none: the model's own limit."""

    long_prompts: Literal["refuse", "drop"] = "refuse"
    """What happens to prompts with more than ``max_prompt_tokens``; those that are dropped are counted."""

    stop: tuple[str, ...] = ()
    """A completion ends with the token that completes one of these too; its text ends before it."""

    temperature: PositiveFloat = 1.0
    """One temperature for sampling and for policy and reference log-probs."""

    learning_rate: PositiveFloat = 1e-3
    """AdamW step size where the search does not set one."""

    max_grad_norm: PositiveFloat = 1.0
    """Gradient norm clip, per slot."""

    weight_decay: NonNegativeFloat = 0.0
    """Decoupled AdamW weight decay."""

    clip_ratio: PositiveFloat = 0.2
    """Clip of the importance ratio against the behaviour policy: 1 - this to 1 + this."""

    clip_ratio_high: PositiveFloat | None = None
    """Upper clip, where it differs (DAPO 2503.14476: .28)."""

    clip_ratio_max: float | None = Field(default=None, gt=1)
    """Bound of the ratio where the advantage is negative too (dual clip 1912.09729, TRL's delta)."""

    entropy_bonus: NonNegativeFloat = 0.0
    """Advantage units per nat of the policy's entropy, aggregated like the policy loss."""

    kl: KLSpec = KLSpec()
    """How the KL penalty is taken."""

    reward: RewardSpec = RewardSpec()
    """What happens to a score before it is a reward."""

    critic: CriticSpec | None = None
    """PPO's value function; only with algorithm ppo."""

    reference: ReferenceSpec = ReferenceSpec()
    """Whether the reference follows the policy."""

    micro_batch: PositiveInt | None = None
    """Rows per slot in one backward pass; none: found automatically. Must divide the batch."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the forward passes; log-softmax, adapters' moments and reductions stay fp32."""

    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", device) is None:
            raise ValueError(f"must be auto, cpu, cuda or cuda:N (got {device!r})")
        return device

    @model_validator(mode="before")
    @classmethod
    def _completions_to_prompts(cls, data: Any) -> Any:
        if not isinstance(data, dict) or cast("dict[str, Any]", data).get("completions") is None:
            return data
        given = cast("dict[str, Any]", data)
        completions, group = given["completions"], given.get("group_size", 8)
        if not (_is_count(completions) and _is_count(group) and group >= 2):
            return given  # the fields' own checks say what is wrong
        # A resolved spec holds both, and they agree.
        if given.get("prompts", completions / group) != completions / group:
            raise FieldProblems(("completions", "give prompts or completions, not both"))
        if completions % group:
            allowed = [g for g in range(2, completions + 1) if completions % g == 0]
            problem = (
                f"{completions} is not a multiple of group_size {group}; "
                f"group sizes that divide it: {', '.join(map(str, allowed)) or 'none'}"
            )
            raise FieldProblems(("completions", problem))
        return {**given, "prompts": completions // group}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [*self._batch_problems(), *self._algorithm_problems()]
        if problems:
            raise FieldProblems(*problems)
        return self

    def _batch_problems(self) -> list[tuple[str, str]]:
        problems: list[tuple[str, str]] = []
        if self.long_prompts == "drop" and self.max_prompt_tokens is None:
            problems.append(("long_prompts", "drop needs max_prompt_tokens: longer than what?"))
        if "" in self.stop:
            problems.append(("stop", "an empty text would end every completion at once"))
        rows = self.rows
        if rows % self.minibatches:
            problems.append(("minibatches", _divisors_of(rows, self.minibatches, "per step")))
        elif self.micro_batch is not None and (rows // self.minibatches) % self.micro_batch:
            per = "per update" if self.minibatches > 1 else "per step"
            problems.append(
                ("micro_batch", _divisors_of(rows // self.minibatches, self.micro_batch, per))
            )
        highest = 1 + self.clip_high
        if self.clip_ratio_max is not None and self.clip_ratio_max <= highest:
            problems.append(
                (
                    "clip_ratio_max",
                    f"must be above the upper clip, {highest:g} (got {self.clip_ratio_max:g})",
                )
            )
        return problems

    def _algorithm_problems(self) -> list[tuple[str, str]]:
        problems: list[tuple[str, str]] = []
        if self.critic is not None and self.algorithm != "ppo":
            problems.append(("critic", f"only ppo has a critic (algorithm is {self.algorithm})"))
        if self.algorithm == "ppo" and self.credit != "reward-to-go":
            problems.append(
                (
                    "kl.credit",
                    f"ppo pays each token's KL at its place: only reward-to-go (got {self.credit})",
                )
            )
        if self.importance == "sequence":
            if self.loss_aggregation != "seq-mean-token-sum":
                problems.append(
                    (
                        "importance",
                        "a ratio of whole completions needs aggregation: seq-mean-token-sum "
                        f"(it is {self.loss_aggregation})",
                    )
                )
            if self.credit == "reward-to-go":
                problems.append(
                    (
                        "importance",
                        "a ratio of whole completions needs one advantage per completion, so not "
                        "kl.credit: reward-to-go or ppo",
                    )
                )
        return problems

    @property
    def rows(self) -> int:
        """Completions per step of one slot (N)."""
        return self.prompts * self.group_size

    @property
    def loss_aggregation(self) -> Aggregation:
        """The aggregation in force."""
        return self.aggregation or OWN_AGGREGATION[self.algorithm]

    @property
    def clip_high(self) -> float:
        """The upper clip in force."""
        return self.clip_ratio if self.clip_ratio_high is None else self.clip_ratio_high

    @property
    def credit(self) -> Credit:
        """Which tokens pay for a KL in the reward, in force."""
        return self.kl.credit or ("reward-to-go" if self.algorithm == "ppo" else "sequence")

    @property
    def value_function(self) -> CriticSpec | None:
        """The critic in force; none but under ppo."""
        return (self.critic or CriticSpec()) if self.algorithm == "ppo" else None


def _divisors_of(rows: int, given: int, per: str) -> str:
    allowed = [m for m in range(1, rows + 1) if rows % m == 0]
    return (
        f"{given} does not divide the {rows} completions {per}; "
        f"allowed: {', '.join(map(str, allowed))}"
    )


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
