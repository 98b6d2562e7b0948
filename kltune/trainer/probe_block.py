"""Some completions of a policy in, their numbers and the mean gradient of every penalty over them out.

Shapes: N completions, T tokens, P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kltune.spec.penalty import Penalty
from kltune.spec.trial import TrialSpec
from kltune.trainer.batch import Batch, Measured
from kltune.trainer.controller import ControlState
from kltune.trainer.credit import credits_of, token_kl
from kltune.trainer.critic import values
from kltune.trainer.data import EncodedPrompts, samples_of
from kltune.trainer.logprobs import Completions, Hidden, Logprobs, Scoring, compare, hidden_states
from kltune.trainer.micro_batch import MicroBatch, within_memory
from kltune.trainer.model import LoadedModel
from kltune.trainer.parts import BankParts
from kltune.trainer.penalty_gradients import (
    POLICY,
    Terms,
    every_gradient,
    gradients,
    penalty_losses,
    recipe,
    reward_advantages,
)
from kltune.trainer.rollout import Rollout
from kltune.trainer.score import score_samples
from kltune.trainer.shaping import shape_scores
from kltune.trainer.slot import SlotState


@dataclass(frozen=True, slots=True)
class ProbeBlock:
    """Completions of the policy, their numbers and the mean gradients over them."""

    logprobs_NT: NDArray[np.floating]
    ref_logprobs_NT: NDArray[np.floating]
    exact_NT: NDArray[np.floating]
    """KL(policy || reference) of each position, nats."""
    forward_NT: NDArray[np.floating]
    """KL(reference || policy) of each position, nats."""
    mask_NT: NDArray[np.bool_]
    score_N: NDArray[np.floating]
    """Of the proxy; NaN where it could not judge."""
    weight_N: NDArray[np.floating] | None
    """Share of each enumerated completion in all blocks together; none where they were drawn."""
    prompt_N: NDArray[np.int64]
    """Which prompt each completion answers."""
    gradients: dict[str, NDArray[np.floating]] = field(
        default_factory=dict[str, NDArray[np.floating]]
    )
    """``[P]`` by penalty, and for the references and the policy loss (penalty_gradients.py)."""


@dataclass(slots=True)
class Look:
    """One policy and what it is asked; remembers the micro-batch that fits."""

    parts: BankParts
    row: int
    prompts: EncodedPrompts
    terms: Terms
    has_reward: bool
    """Whether the data's proxy is one: without it there is no policy gradient."""
    reference: LoadedModel | None
    """Another model as the reference; none: the bank's own."""
    micro: MicroBatch | None = None

    def at(self, rows: Rollout, indices: list[int], share: float | None) -> ProbeBlock:
        """Look at these completions of the prompts ``indices``.

        ``share``: enumerated completions are weighted by their probability, and together weigh this much.

        Raises:
            TrialFault: the proxy failed, or memory ran out.
        """
        count = len(indices)
        micro = self.micro = self.micro or MicroBatch(count)
        scores_N = self._scores(rows, indices)
        measured = within_memory(lambda: micro.run(lambda n: self._measure(rows, n)), self.row)
        mask_NT = rows.mask_KNT[0]
        logprobs_N = measured.logprobs.policy_KNT[0].where(mask_NT, 0.0).sum(dim=-1)
        weight_N = (
            torch.full_like(logprobs_N, 1 / count, dtype=torch.float64)
            if share is None
            else logprobs_N.double().exp() * share
        )
        worth = self._worth(rows, measured, scores_N, weight_N)
        found = within_memory(
            lambda: micro.run(lambda n: self._gradients(rows, measured, worth, weight_N, n)),
            self.row,
        )
        columns = measured.logprobs

        def plain(tensor: Tensor) -> NDArray[np.floating]:
            return tensor.detach().cpu().numpy()

        return ProbeBlock(
            logprobs_NT=plain(columns.policy_KNT[0]),
            ref_logprobs_NT=plain(columns.reference_KNT[0]),
            exact_NT=plain(columns.exact_kl_KNT[0]),
            forward_NT=plain(columns.forward_kl_KNT[0]),
            mask_NT=mask_NT.cpu().numpy(),
            score_N=plain(scores_N),
            weight_N=None if share is None else plain(weight_N),
            prompt_N=np.array(indices),
            gradients={name: plain(gradient_P) for name, gradient_P in found.items()},
        )

    def _scores(self, rows: Rollout, indices: list[int]) -> Tensor:
        loaded = self.parts.loaded
        if not self.has_reward:
            return torch.full((len(indices),), float("nan"), device=loaded.device)
        samples = samples_of(loaded, rows, 0, [self.prompts.prompts[i] for i in indices])
        scores = score_samples(self.parts.data.proxy, samples, self.row, may_skip=True)
        return torch.tensor(scores, dtype=torch.float32, device=loaded.device)

    def _scoring(self) -> Scoring:
        trainer = self.parts.settings.trainer
        top_k = trainer.kl.top_k if Penalty.TOPK_LOSS in self.terms.penalties else None
        wanted = {"exact", "forward"} | ({"top_k"} if top_k is not None else set[str]())
        only_valid = self.parts.settings.compact
        return Scoring(trainer.temperature, only_valid, frozenset(wanted), top_k)

    @torch.no_grad()
    def _measure(self, rows: Rollout, size: int) -> Measured:
        """Everything by the policy as it is, ``size`` completions at a time."""
        parts = self.parts
        logprobs: list[Logprobs] = []
        references: list[Hidden] = []
        critics: list[Tensor] = []
        for piece in self._pieces(rows, size):
            some = Completions.of(rows).take(piece)
            reference = self._reference(some)
            policy = hidden_states(parts.loaded, parts.stack, parts.stack.view((self.row,)), some)
            logprobs.append(compare(parts.loaded, policy, reference, some, self._scoring()))
            references.append(reference)
            if parts.critic is not None:
                view = parts.stack.view(parts.rows.critics((self.row,)))
                states = hidden_states(parts.loaded, parts.stack, view, some).states_KNTD
                critics.append(values(states, parts.critic.heads((self.row,)), some.mask_KNT))
        joined = Logprobs.join(logprobs)
        states_KNTD = torch.cat([piece.states_KNTD for piece in references], dim=1)
        return Measured(
            logprobs=joined,
            reference=Hidden(states_KNTD, references[0].head),
            start_kl_KNT=joined.exact_kl_KNT,
            values_KNT=torch.cat(critics, dim=1) if critics else None,
        )

    def _reference(self, some: Completions) -> Hidden:
        parts, other = self.parts, self.reference
        if other is not None:
            return hidden_states(other, parts.stack, None, some)
        moving = None
        if parts.rows.has_reference:
            moving = parts.stack.view(parts.rows.references((self.row,)))
        return hidden_states(parts.loaded, parts.stack, moving, some)

    def _worth(
        self, rows: Rollout, measured: Measured, scores_N: Tensor, weight_N: Tensor
    ) -> dict[str, Tensor]:
        """Advantages of every part that is a policy gradient, ``[N, T]``."""
        mask_NT = rows.mask_KNT[0]
        columns = token_kl(measured.logprobs, measured.logprobs.policy_KNT[0], 0).masked(mask_NT)
        worth = reward_advantages(self.terms, columns, mask_NT)
        if self.has_reward:
            worth[POLICY] = (
                self._own_advantages(rows, measured, scores_N)
                if self.terms.group_size is not None
                else self._expected_advantages(mask_NT, scores_N, weight_N)
            )
        return worth

    def _own_advantages(self, rows: Rollout, measured: Measured, scores_N: Tensor) -> Tensor:
        """As a step of the spec's algorithm would credit these completions, without any KL."""
        settings = self.parts.settings
        spec = TrialSpec(beta=0.0, learning_rate=settings.trainer.learning_rate)
        state = SlotState(0, spec, step=0, control=ControlState(beta=0.0))
        initial = (settings.scale.mean, settings.scale.std)
        shaped = shape_scores(scores_N, settings.trainer.reward, initial, state.scores)
        batch = Batch((self.row,), (state,), rows, scores_N[None], (shaped,))
        return credits_of(self.parts, batch, measured)[0].advantages.advantage_NT

    def _expected_advantages(self, mask_NT: Tensor, scores_N: Tensor, weight_N: Tensor) -> Tensor:
        """A group of all completions: score less its mean, over its standard deviation if the algorithm has one."""
        share_N = (weight_N / weight_N.sum()).to(scores_N.dtype)
        centred_N = (scores_N - (share_N * scores_N).nansum()).nan_to_num(nan=0.0)
        if self.parts.settings.trainer.algorithm not in ("rloo", "dr-grpo"):
            centred_N = centred_N / ((share_N * centred_N.square()).sum().sqrt() + 1e-4)
        return centred_N[:, None].expand(mask_NT.shape).where(mask_NT, 0.0)

    def _gradients(
        self,
        rows: Rollout,
        measured: Measured,
        worth: dict[str, Tensor],
        weight_N: Tensor,
        size: int,
    ) -> dict[str, Tensor]:
        parts = self.parts
        view = parts.stack.view((self.row,))
        weight_NT = weight_N[:, None] * rows.mask_KNT[0]
        total: dict[str, Tensor] = {}
        for piece in self._pieces(rows, size):
            some, index_B = Completions.of(rows).take(piece), piece[0]
            policy = hidden_states(parts.loaded, parts.stack, view, some)
            reference = measured.reference.take(piece)
            fresh = compare(parts.loaded, policy, reference, some, self._scoring())
            columns = token_kl(fresh, measured.logprobs.policy_KNT[0, index_B], 0)
            here = {name: worth_NT[index_B] for name, worth_NT in worth.items()}
            losses = penalty_losses(self.terms, columns, weight_NT[index_B], here)
            for name, gradient_P in gradients(losses, view).items():
                total[name] = gradient_P if name not in total else total[name] + gradient_P
        recipes: dict[str, tuple[str, ...]] = dict(recipe(self.terms))
        if POLICY in total:
            recipes[POLICY] = (POLICY,)
        return every_gradient(total, recipes)

    def _pieces(self, rows: Rollout, size: int) -> list[Tensor]:
        """Row indices, ``[1, B]`` each."""
        every = torch.arange(rows.ids_KNT.shape[1], device=rows.ids_KNT.device)[None]
        return list(every.split(size, dim=1))
