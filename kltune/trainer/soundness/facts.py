"""What the probes find, as plain numbers without a verdict; `kltune.check` judges them. No torch here.

Log-probs and their differences are in nats per token, memory in bytes, times in seconds. A number
that could not be measured is None.
"""

from __future__ import annotations

from dataclasses import dataclass

from kltune.trainer.soundness.score_facts import ScoringFacts
from kltune.trainer.soundness.token_facts import StopFacts, TokenFacts


@dataclass(frozen=True, slots=True)
class PaddingFacts:
    """The same completions scored alone, beside neighbours, and with more padding: largest difference of a log-prob."""

    num_tokens: int
    policy_left: float
    """More padding on the left."""
    policy_right: float
    """More padding on the right."""
    policy_neighbours: float
    """Alone against in a batch with prompts and completions of other lengths."""
    reference_left: float
    reference_right: float
    reference_neighbours: float

    @property
    def worst(self) -> float:
        """The largest of all; NaN where one is."""
        values = (
            self.policy_left, self.policy_right, self.policy_neighbours,
            self.reference_left, self.reference_right, self.reference_neighbours,
        )  # fmt: skip
        return max(values, key=lambda value: (value != value, value))


@dataclass(frozen=True, slots=True)
class ReferenceFacts:
    """The start policy against the reference, on its own fresh samples."""

    num_tokens: int
    exact_kl_token: float
    """Nats per token."""
    exact_kl_seq: float
    """Nats per sequence."""
    k1_token: float
    k3_token: float
    largest_gap: float
    """Largest |log-prob of the policy - log-prob of the reference| of a token."""
    floor_kl_token: float
    """k3 of the reference against itself through two batch shapes: what the arithmetic alone makes, nats per token."""
    floor_gap: float
    """Largest difference of a log-prob between the two shapes."""
    precision: str
    """``fp32`` or ``bf16``."""


@dataclass(frozen=True, slots=True)
class FixedPointFacts:
    """One whole training step at learning rate 0, and one at the real rate."""

    weights_kept_at_zero: bool
    """Every trained weight bit-equal after the step at learning rate 0."""
    changed_at_zero: int
    """Trained numbers that changed in it."""
    learning_rate: float
    """The real one."""
    weights_moved: bool
    """Whether the step at the real rate changed the policy."""
    changed_frac: float
    """Share of the trained numbers that it changed."""
    largest_change: float
    reference_kept: bool
    """Whether the frozen base is bit-equal after both steps (by hash)."""
    reference_logprobs_kept: bool | None
    """Whether its log-probs of the drawn completions are bit-equal after both; none where the spec lets the
    reference follow the policy."""
    shares_storage: bool
    """Whether a trained weight lies in the same memory as a weight of the base."""
    grad_norm: float
    """Of the real step."""
    zero_group_frac: float
    """Share of its groups whose scores are all the same; at 1 nothing could move."""
    kl_after_token: float
    """Exact KL of the policy after the real step on the drawn completions, nats per token."""


@dataclass(frozen=True, slots=True)
class SamplerFacts:
    """Log-probs that the sampler drew with against those that the trainer computes for the same tokens."""

    num_tokens: int
    start_gap: float
    """Largest difference at the start policy."""
    start_mean: float
    """Mean difference (sampler - trainer) there."""
    moved_gap: float | None
    """Largest difference after a step, with adapters that are not zero; none where no step was made."""
    moved_mean: float | None


@dataclass(frozen=True, slots=True)
class OracleFacts:
    """The trainer's log-probs against a plain forward of the same transformers model, one completion at a time."""

    num_completions: int
    num_tokens: int
    policy_gap: float
    """Largest difference of a log-prob, policy."""
    reference_gap: float
    temperature: float
    """As the spec says."""
    fitted_temperature: float | None
    """The temperature that explains the trainer's policy log-probs best; none where nothing is to be explained."""
    fitted_gap: float | None
    """Mean |difference| that is left at the fitted temperature."""
    best_shift: int | None
    """Positions by which the trainer's log-probs are moved against the plain ones (0: by none; 1: the trainer
    scored the token after)."""
    shift_gap: float | None
    """Mean |difference| that is left at that shift, but for as many tokens at either end."""
    mean_gap: float
    """Mean |difference| as it is."""
    cause: str
    """``none`` (below what arithmetic makes), ``shift``, ``temperature``, ``unknown``."""


@dataclass(frozen=True, slots=True)
class DropoutFacts:
    """Whether two passes over the same rows agree, and what could make them differ."""

    active: tuple[str, ...]
    """Modules that drop at a rate above 0 and are in training mode, by name; the first eight."""
    num_active: int
    in_config: tuple[str, ...]
    """Dropout rates above 0 in the model's config: harmless while the modules are in evaluation mode."""
    training_modules: int
    """Modules in training mode."""
    policy_gap: float
    """Largest difference of a log-prob between two passes."""
    reference_gap: float
    scores_repeat: bool | None
    """Whether a learned reward gives the same scores twice; none where the proxy is a function."""


@dataclass(frozen=True, slots=True)
class CountedSample:
    """One completion whose valid tokens were counted by hand."""

    prompt_tokens: int
    by_hand: int
    """Ids up to and including the first stop id, or all where there is none."""
    by_mask: int
    """True positions of the rollout's mask."""
    in_place: bool
    """Whether the mask is true at exactly these positions."""
    scored: int
    """Positions at which the trainer's log-prob is not 0."""
    ended: bool
    """As the rollout says."""
    text: str


@dataclass(frozen=True, slots=True)
class MaskFacts:
    """Valid tokens by hand and as the trainer counts them."""

    samples: tuple[CountedSample, ...]
    """Three of them: wrong ones where there are, else of lengths as different as they come."""
    by_hand: int
    """Over all drawn completions."""
    by_mask: int
    by_lengths: int
    """Sum of the rollout's lengths."""
    scored: int
    """Positions with a log-prob other than 0, over all."""
    weighted: float
    """Weight that the loss puts outside the tokens counted by hand; 0 is right."""
    wrong_rows: int
    """Completions whose mask is not true at exactly the positions counted by hand."""
    wrong_ends: int
    """Completions that are called ended without a stop token, or not ended with one."""
    longest: int
    """Valid tokens of the longest completion, by the mask."""
    limit: int
    """``trainer.max_new_tokens``; a longer completion holds something else than what was drawn."""
    prompt_tail_frac: float
    """Share of completions that begin with the last token of their prompt; near 1 prompt tokens are counted."""
    step_by_hand: int | None
    """Valid tokens of a real step's rollout, counted by hand; none where no step was made."""
    step_metric: float | None
    """``tokens/step`` of that step."""


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """What a bank needs, reckoned and measured."""

    slots: int
    """Trials at once that the estimate is for."""
    base: int
    """The frozen weights."""
    adapters: int
    """Trained weights, gradients and moments of all slots."""
    activations: int
    """Of one step at the longest completions: what the backward pass keeps, or the sampler's cache if that is more."""
    step_estimate: int
    """The same for one slot and completions as long as they were drawn: to be held against the next."""
    step_peak: int | None
    """Measured on one slot: the most memory that one step took beyond what was held before it."""
    process_peak: int | None
    """Measured: the whole process, or the device's allocations, during that step."""
    free: int | None
    """On the device, beyond what is held."""

    @property
    def estimate(self) -> int:
        """All together."""
        return self.base + self.adapters + self.activations


@dataclass(frozen=True, slots=True)
class Soundness:
    """What all the probes found."""

    tokens: TokenFacts
    stops: StopFacts
    padding: PaddingFacts
    reference: ReferenceFacts
    fixed_point: FixedPointFacts
    sampler: SamplerFacts
    oracle: OracleFacts
    dropout: DropoutFacts
    masks: MaskFacts
    memory: MemoryFacts
    scoring: ScoringFacts
    unread_weights: tuple[str, ...] = ()
    """Weights of the model's files that its config has no place for."""


@dataclass(frozen=True, slots=True)
class CheapSoundness:
    """What needs no step and no pass of its own: the part that every sweep looks at."""

    tokens: TokenFacts
    stops: StopFacts
    reference: ReferenceFacts
    masks: MaskFacts
    scoring: ScoringFacts
