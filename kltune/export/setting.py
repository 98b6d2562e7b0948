"""What a study recommends, free of any framework: the setting, what was measured of it, when to stop, how sure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kltune.spec.control import ControlSpec
from kltune.spec.guards import GuardsSpec, KLGuardSpec
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import BetaUnit, KLUnit, TrialSpec
from kltune.units import (
    advantage_scale,
    baseline_share,
    in_advantage_units,
    kl_per_sequence,
    kl_per_token,
    loss_coefficient,
    reward_price,
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a setting comes from."""

    study: str
    trial: int
    origin: str
    """Who proposed it, as in config.json."""
    is_recommended: bool
    """False where ``--trial`` took another one."""
    rivals: int
    """Other settings of the study that can't be told apart from it; 0 where it is not recommended."""
    base: str
    """The model that it was found on."""
    lora_rank: int | None
    """None: all weights were trained."""
    doubt: str = ""
    """What is wrong with the trial, as words after its number; empty where nothing is."""
    read_from: str = ""
    """Framework and release of the configuration that it was read from; empty where a study found it."""


@dataclass(frozen=True, slots=True)
class Stop:
    """When to stop, and at which KL; both units hold at the same checkpoint."""

    first_step: int
    last_step: int
    """From the first to the last of these gold can't be told from its best."""
    peak_step: int
    """Of the KL below: where gold was highest, or the end where the study judges trials by that."""
    steps_run: int
    steps_planned: int
    kl_token: float
    """Exact KL at that step, nats per token."""
    kl_seq: float
    """The same in nats per sequence."""
    ended_by: str
    """How a guard ended the trial's training; empty where none did."""
    basis: str = "on the select prompts, one seed"
    """Which prompts and seeds the KL above was measured on."""

    def kl(self, unit: KLUnit, mean_tokens: float) -> tuple[float, float]:
        """KL at the peak as nats per token and per sequence of this mean length; the one in ``unit`` is kept."""
        if unit is KLUnit.TOKEN:
            return self.kl_token, kl_per_sequence(self.kl_token, mean_tokens)
        return kl_per_token(self.kl_seq, mean_tokens), self.kl_seq


@dataclass(frozen=True, slots=True)
class Gold:
    """What the setting is worth, with the 95 % interval."""

    value: float
    low: float | None
    high: float | None
    """None where there is no interval."""
    start: float | None
    """Before training, on the same prompts."""
    basis: str
    """Which prompts and seeds it was judged on, and by which rule."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the study measured of the proxy under the reference and of the trial; None: not on record."""

    sigma_r: float | None
    """Standard deviation of the proxy within a group, raw reward."""
    std_r: float | None
    """The same over all completions."""
    mean_tokens: float
    """Valid tokens per completion at the peak."""
    target_kl: float | None
    """The target in force, in kl_unit: set, or measured in the warm-up."""
    first_coefficient: float | None
    """Recorded at the first step: the factor of the KL where it was paid, for the score that was trained on."""
    final_beta: float | None
    """Median over the final window of steps up to the peak, in beta_unit."""
    window: tuple[int, int] | None
    """First and last step of that window."""


@dataclass(frozen=True, slots=True)
class Texts:
    """How the study made prompts and took answers, as its model section has it."""

    system: str | None = None
    thinking: str = "default"
    """``on`` and ``off``: the template's switch was set."""
    answer_after: str | None = None
    chat: str = "auto"


@dataclass(frozen=True, slots=True)
class Winner:
    """One setting with all that another trainer must be told."""

    source: Source
    setting: TrialSpec
    trainer: TrainerSpec
    control: ControlSpec
    beta_unit: BetaUnit
    kl_unit: KLUnit
    measured: Measured
    stop: Stop | None
    """None where the setting comes from a configuration and was never run."""
    gold: Gold | None
    guards: GuardsSpec
    kl_guard: KLGuardSpec | None
    """The KL limit that ends a run, in kl_unit; None: there is none."""
    kl_limit: float | None
    """The objective's limit on a checkpoint, in kl_unit."""
    confirmation: str
    """What fresh seeds and test prompts said, or that they weren't asked."""
    missed: str = ""
    """The verdict on a controller that did not hold its target, as the report has it; empty where it did or has none."""
    text: Texts = Texts()

    @property
    def scale(self) -> float | None:
        """What advantages are divided by, raw reward; None where by nothing, or where it is not on record."""
        nan = float("nan")
        sigma, std = self.measured.sigma_r, self.measured.std_r
        critic = self.trainer.value_function
        found = advantage_scale(
            self.trainer.algorithm,
            nan if sigma is None else sigma,
            nan if std is None else std,
            is_whitened=critic is None or critic.whiten,
        )
        return None if found is None or found != found else found

    @property
    def is_divided(self) -> bool:
        """Whether the algorithm divides its advantages by a standard deviation."""
        critic = self.trainer.value_function
        whitened = critic is None or critic.whiten
        return advantage_scale(self.trainer.algorithm, 1.0, 1.0, is_whitened=whitened) is not None

    def price(self, beta: float) -> float | None:
        """Raw reward per nat of sequence KL, for a KL in the reward.

        A native beta of a loss penalty counts beside the advantages: it is taken back to raw reward;
        None where the scale for that is not on record.
        """
        penalty = self.setting.penalty
        if penalty is None or penalty.in_reward or self.beta_unit is BetaUnit.REWARD:
            return reward_price(beta, self.beta_unit.value)
        if not self.is_divided:
            return beta / self._share
        return None if self.scale is None else beta * self.scale

    def coefficient(self, beta: float) -> float | None:
        """Factor of a KL in the loss beside the algorithm's own advantages, as kltune trained it.

        None where the scale is not on record.
        """
        penalty = self.setting.penalty
        if self.is_divided and self.scale is None and not self._is_free:
            return self._recorded(beta)
        if penalty is not None and penalty.in_reward:
            price = reward_price(beta, self.beta_unit.value)
            return self._share * in_advantage_units(price, self.scale)
        share = 1.0 if self._is_free else self._share
        return share * loss_coefficient(beta, self.beta_unit.value, self.scale)

    @property
    def final_beta(self) -> float:
        """Beta to hold where nothing moves it: the median of the final window, else the start's."""
        found = self.measured.final_beta
        return self.setting.beta if found is None else found

    def both_units(self, kl: float, mean_tokens: float | None = None) -> tuple[float, float]:
        """A KL in kl_unit as nats per token and per sequence, at the study's mean length unless given."""
        tokens = self.measured.mean_tokens if mean_tokens is None else mean_tokens
        if self.kl_unit is KLUnit.TOKEN:
            return kl, kl_per_sequence(kl, tokens)
        return kl_per_token(kl, tokens), kl

    def as_json(self) -> dict[str, Any]:
        """Plain values: KL in nats with its unit in the name, beta in beta_unit."""
        specs = ("setting", "trainer", "control", "guards", "kl_guard")
        plain = {name: getattr(self, name) for name in specs}
        return {
            "source": asdict(self.source),
            **{
                name: None if spec is None else spec.model_dump(mode="json")
                for name, spec in plain.items()
            },
            "beta_unit": self.beta_unit.value,
            "kl_unit": self.kl_unit.value,
            "measured": asdict(self.measured),
            "stop": None if self.stop is None else asdict(self.stop),
            "gold": None if self.gold is None else asdict(self.gold),
            "kl_limit": self.kl_limit,
            "confirmation": self.confirmation,
            "text": asdict(self.text),
            "controller_verdict": self.missed or None,
        }

    @property
    def _share(self) -> float:
        return baseline_share(self.trainer.algorithm, self.trainer.group_size)

    @property
    def _is_free(self) -> bool:
        """Whether beta is the coefficient itself."""
        penalty = self.setting.penalty
        return self.beta_unit is BetaUnit.NATIVE and not (penalty is not None and penalty.in_reward)

    def _recorded(self, beta: float) -> float | None:
        """From the recorded coefficient of a loss penalty, in proportion to beta."""
        first, penalty = self.measured.first_coefficient, self.setting.penalty
        in_loss = penalty is not None and penalty.in_loss and not penalty.in_reward
        if first is None or not in_loss or self.setting.beta == 0:
            return None
        return first * beta / self.setting.beta
