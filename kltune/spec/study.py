"""The root of a spec: one YAML file in, one study out."""

from __future__ import annotations

import re
from typing import Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveInt,
    field_validator,
    model_validator,
)

from kltune.spec.algorithm import KLSpec
from kltune.spec.baseline import Baseline, baseline_problems, known, setting
from kltune.spec.closed import Closed, FieldProblems
from kltune.spec.control import ControlSpec, control_problems
from kltune.spec.duration import seconds
from kltune.spec.guard_problems import guard_problems
from kltune.spec.guards import GuardsSpec, KLGuardSpec
from kltune.spec.model import ModelSpec
from kltune.spec.objective import ObjectiveSpec, unknown_golds
from kltune.spec.penalty import Penalty
from kltune.spec.price import PriceSpec
from kltune.spec.search import SearchSpec, biased_problems
from kltune.spec.storage import StorageSpec
from kltune.spec.task import Task
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import CONTROLLER_CLIP, BetaUnit, KLUnit


class PruningSpec(Closed):
    """Stop a trial that peers beat: lower gold and KL that is not lower, after a warm-up."""

    enabled: bool = True
    warmup: float = Field(default=0.4, ge=0, lt=1)
    """Share of the steps before which nothing is pruned: early gold ranks are often inverted."""

    peers: PositiveInt = 5
    """Trials that must have reached the step before one is pruned against them."""


class EvaluateSpec(Closed):
    """Gold, proxy and exact KL on the select prompts, by the way."""

    every: PositiveInt = 10
    """Steps between evaluations; step 0 and the last step always."""

    prompts: PositiveInt = 64
    """Select prompts used (fewer where the split is smaller)."""

    samples: PositiveInt = 2
    """Completions per prompt."""

    keep: NonNegativeInt = 8
    """Completions written to samples.jsonl at each evaluation."""


class BudgetSpec(Closed):
    """How much is spent in all."""

    trials: PositiveInt
    """Trials of the study in total, baselines included."""

    slots: PositiveInt | Literal["auto"] = "auto"
    """Trials that train at once, over all workers; auto: by what this machine gains from it."""

    workers: PositiveInt | Literal["auto"] = "auto"
    """Processes that share these trials; auto: by what this machine gains from it."""

    wall: float | None = Field(default=None, gt=0)
    """Wall clock of one `kltune sweep` in seconds (YAML: 900, 900s, 15m, 2h)."""

    noise_seeds: NonNegativeInt = 0
    """Further seeds of the beta = 0 arm (of the first baseline where there is none), to measure what a
    seed alone changes; they count as trials, and none of them is recommended."""

    retries: NonNegativeInt = 2
    """Further attempts of a trial that ended in an error."""

    price: PriceSpec | None = None
    """What machine and energy cost, for the report; none: it speaks of neither."""

    @field_validator("wall", mode="before")
    @classmethod
    def _duration(cls, value: Any) -> Any:
        return seconds(value)


class SamplerSpec(Closed):
    """Who proposes settings after the baselines."""

    name: Literal["tpe", "random"] = "tpe"
    startup: PositiveInt | None = None
    """Sobol points before the model guides; none: a share of the budget."""


class TrackingSpec(Closed):
    """Where the mirror of the record goes."""

    mlflow: str | None = None
    """Tracking URI; none: MLFLOW_TRACKING_URI, else sqlite in the study folder."""

    enabled: bool = True


class StudySpec(Closed):
    """A whole study."""

    name: str
    """Folder name under studies/."""

    task: Task
    """What is learned."""

    model: ModelSpec
    trainer: TrainerSpec
    search: SearchSpec
    baselines: tuple[Baseline, ...] = ()
    """Run first: known recipes by versioned name, and settings written out (spec/baseline.py)."""

    control: ControlSpec = ControlSpec()
    """How controllers act, beyond what is searched."""

    allow_biased: bool = False
    """Admit penalties whose gradient is not that of a KL, to study them."""

    objective: ObjectiveSpec = ObjectiveSpec()
    guards: GuardsSpec = GuardsSpec()
    pruning: PruningSpec = PruningSpec()
    evaluate: EvaluateSpec = EvaluateSpec()
    budget: BudgetSpec
    sampler: SamplerSpec = SamplerSpec()
    tracking: TrackingSpec = TrackingSpec()
    storage: StorageSpec = StorageSpec()
    kl_unit: KLUnit = KLUnit.TOKEN
    """What target_kl and KL limits are in."""

    beta_unit: BetaUnit = BetaUnit.REWARD
    """What beta is in."""

    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Root of every random number."""

    @field_validator("name")
    @classmethod
    def _is_a_folder_name(cls, name: str) -> str:
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) is None:
            raise ValueError(
                "must be a folder name: up to 100 letters, digits, dots, dashes or underscores, "
                f"a letter or digit first (got {name!r})"
            )
        return name

    @field_validator("task", mode="before")
    @classmethod
    def _name_is_builtin(cls, value: Any) -> Any:
        return {"builtin": value} if isinstance(value, str) else value

    @field_validator("storage", mode="before")
    @classmethod
    def _address_alone(cls, value: Any) -> Any:
        return {"url": value} if isinstance(value, str) else value

    @field_validator("baselines")
    @classmethod
    def _known(cls, baselines: tuple[Baseline, ...]) -> tuple[Baseline, ...]:
        known(baselines)
        return baselines

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [
            *self._budget_problems(),
            *self._controller_problems(),
            *self._penalty_problems(),
            *baseline_problems(self.baselines, self.trainer.rows, allow_biased=self.allow_biased),
            *unknown_golds(self.objective, self.task.golds),
            *guard_problems(self.guards, self.objective.metric, self.objective.kl_limit),
        ]
        if not self.allow_biased:
            problems += biased_problems(self.search)
        if problems:
            raise FieldProblems(*problems)
        return self

    def _budget_problems(self) -> list[tuple[str, str]]:
        problems: list[tuple[str, str]] = []
        arms = len(self.baselines) + int(self.search.beta.zero)
        fixed = arms + self.budget.noise_seeds
        if self.budget.noise_seeds and not arms:
            text = (
                "repeats the beta = 0 arm or a baseline, and there is neither: add search.beta.zero"
            )
            problems.append(("budget.noise_seeds", text))
        if fixed > self.budget.trials:
            problems.append(
                (
                    "budget.trials",
                    f"{self.budget.trials} is fewer than the {fixed} baselines "
                    f"(beta = 0 arm{' and noise_seeds' if self.budget.noise_seeds else ''} included)",
                )
            )
        slots, workers = self.budget.slots, self.budget.workers
        if isinstance(slots, int) and isinstance(workers, int) and slots % workers:
            text = f"{workers} can't share budget.slots {slots} equally: use one of its divisors"
            problems.append(("budget.workers", text))
        if self.model.finetune == "full" and slots not in (1, "auto", workers):
            each = "" if workers == "auto" else f" in each of {workers} worker(s)"
            text = f"model.finetune: full trains one trial at a time{each} (got {slots})"
            problems.append(("budget.slots", text))
        return problems

    def _controller_problems(self) -> list[tuple[str, str]]:
        recipes = {setting(one).controller for one in self.baselines}
        problems = control_problems(self.search, self.control, recipes)
        horizon = self.search.horizon and self.search.horizon.smallest()
        shortest = CONTROLLER_CLIP * self.trainer.rows
        if horizon is not None and horizon <= shortest:
            problems.append(
                (
                    "search.horizon",
                    f"must be above {shortest:g} sequences ({CONTROLLER_CLIP:g} x {self.trainer.rows} "
                    "completions per step): below it, one step at KL 0 takes beta to 0 or under "
                    f"(got {horizon:g})",
                )
            )
        return problems

    def _penalty_problems(self) -> list[tuple[str, str]]:
        """Settings of penalties that no trial has."""
        penalties = {Penalty(str(value)) for value in self.search.penalty.values()}
        given = {setting(one).penalty for one in self.baselines}
        penalties |= {penalty for penalty in given if penalty is not None}
        kl = self.trainer.kl
        problems: list[tuple[str, str]] = []
        if kl.credit is not None and not any(p.in_reward for p in penalties):
            names = ", ".join(sorted(p.value for p in penalties))
            problems.append(
                (
                    "trainer.kl.credit",
                    f"has no effect, since no KL is paid in the reward ({names}): remove it",
                )
            )
        if kl.credit == "length-mean" and Penalty.EXACT_FULL in penalties:
            problems.append(
                (
                    "trainer.kl.credit",
                    "length-mean prices a nat in the reward by the completion's length, exact-full's part "
                    "in the loss does not: use sequence or reward-to-go",
                )
            )
        if kl.top_k != KLSpec().top_k and Penalty.TOPK_LOSS not in penalties:
            problems.append(
                (
                    "trainer.kl.top_k",
                    "has no effect, since penalty is never topk-loss: remove it",
                )
            )
        return problems

    @property
    def kl_guard(self) -> KLGuardSpec | None:
        """The KL guard in force, with its limit: given, or by default at the objective's limit."""
        guard, limit = self.guards.kl or KLGuardSpec(), self.objective.kl_limit
        if guard.action == "off" or (guard.limit is None and limit is None):
            return None
        return guard if guard.limit is not None else guard.model_copy(update={"limit": limit})
