"""How scores become a loss: the parts of the trainer section beyond its shapes."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from kltune.spec.closed import Closed, FieldProblems

Algorithm = Literal["grpo", "dr-grpo", "rloo", "reinforce", "ppo"]
"""grpo: group mean and group std; dr-grpo: group mean only; rloo: leave-one-out mean; reinforce: mean
and std of the whole batch (REINFORCE++); ppo: critic and generalised advantages."""

Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "constant"]
"""How token losses become one number (kl-reference.md §3.2); constant divides by max_new_tokens."""

Credit = Literal["sequence", "reward-to-go", "length-mean"]
"""Which tokens pay for a KL in the reward: all of them the completion's sum; each its own and the later
ones; or all of them the completion's mean per token (the price is then per nat per token)."""

OWN_AGGREGATION: dict[str, Aggregation] = {
    "grpo": "token-mean",
    "dr-grpo": "constant",
    "rloo": "seq-mean-token-sum",
    "reinforce": "token-mean",
    "ppo": "token-mean",
}
"""What each algorithm uses where the spec does not say."""


class KLSpec(Closed):
    """How the KL penalty is taken, whatever the penalty."""

    credit: Credit | None = None
    """Which tokens pay for a KL in the reward; none: the algorithm's own (ppo: reward-to-go, others: sequence)."""

    clip: PositiveFloat | None = None
    """Clip of a token's KL in the penalty to +- this many nats; counted in every step. None: no clip."""

    top_k: PositiveInt = 32
    """Tokens whose KL is exact under the penalty topk-loss; the rest is sampled."""


class RewardSpec(Closed):
    """What happens to a score before it is a reward, in this order: z-score, scale, clip; then KL is paid."""

    normalize: Literal["none", "initial", "running", "batch"] = "none"
    """Z-score of the proxy by mean and standard deviation of the reference's completions, of all scores
    of the trial so far, or of the step's batch."""

    scale: PositiveFloat = 1.0
    """Factor of the score."""

    clip: PositiveFloat | None = None
    """Clip of the score (never of the KL) to +- this; counted. None: no clip."""


class CriticSpec(Closed):
    """PPO's value function: adapters of its own on the frozen base, and a linear head."""

    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount per token; below 1 the future KL is discounted too."""

    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """Lambda of the generalised advantages (1506.02438)."""

    learning_rate: PositiveFloat | None = None
    """AdamW step size of the critic; none: the policy's."""

    value_clip: PositiveFloat | None = 0.2
    """Clip of a value around its rollout estimate in the value loss; null: none."""

    whiten: bool = True
    """Divide the advantages by their standard deviation over the step's tokens, after subtracting the mean."""


class ReferenceSpec(Closed):
    """A reference that follows the policy (TR-DPO 2404.09656; DeepSeek-R1 replaces it every 400 steps)."""

    every: PositiveInt | None = None
    """Steps between refreshes; none: the reference stays the start."""

    mixture: float = Field(default=1.0, gt=0, le=1)
    """Share of the policy in the new reference's trainable weights; 1 replaces it."""

    @model_validator(mode="after")
    def _mixture_needs_refresh(self) -> Self:
        if self.every is None and self.mixture != 1.0:
            raise FieldProblems(
                ("mixture", f"has no effect without reference.every (got {self.mixture:g})")
            )
        return self
