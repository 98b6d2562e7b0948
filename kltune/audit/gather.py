"""Probed blocks in, one after another, an audit out: sums what is independent, keeps no block's gradients.

Shapes: N completions, T tokens, P parameters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kltune.audit.estimators import mean_per_sequence, mean_per_token, measure
from kltune.audit.gram import Gram, GramStream
from kltune.audit.result import AuditResult, Divergences, Norms, Pair, PenaltyRow
from kltune.audit.statistics import align, length
from kltune.audit.verdict import judge
from kltune.frameworks.samples import Samples
from kltune.frameworks.survey import survey
from kltune.spec.penalty import Penalty

FULL: Final = "sequence-full"
LOCAL: Final = "token-local"
POLICY: Final = "policy"


class Block(Protocol):
    """Some completions of the policy, and the mean gradients over them."""

    @property
    def logprobs_NT(self) -> NDArray[np.floating]:
        """Of the policy, at the sampled tokens."""
        ...

    @property
    def ref_logprobs_NT(self) -> NDArray[np.floating]:
        """Of the reference."""
        ...

    @property
    def exact_NT(self) -> NDArray[np.floating]:
        """KL(policy || reference) of each position."""
        ...

    @property
    def forward_NT(self) -> NDArray[np.floating]:
        """KL(reference || policy) of each position."""
        ...

    @property
    def mask_NT(self) -> NDArray[np.bool_]:
        """Valid tokens."""
        ...

    @property
    def weight_N(self) -> NDArray[np.floating] | None:
        """Shares of enumerated completions in the whole audit; none where they were drawn."""
        ...

    @property
    def prompt_N(self) -> NDArray[np.integer]:
        """Which prompt each completion answers."""
        ...

    @property
    def gradients(self) -> Mapping[str, NDArray[np.floating]]:
        """``[P]`` by penalty, and for `FULL`, `LOCAL` and `POLICY`: of nats (or of the loss) per sequence."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """What is audited, as far as it is known before the first block."""

    policy: str
    reference: str
    prompts: str
    temperature: float
    num_blocks: int
    is_enumerated: bool
    algorithm: str
    setting: str
    """Whose beta the norms are told for."""
    beta: float
    coefficient: float
    """Of that beta beside the algorithm's advantages."""
    notes: tuple[str, ...] = ()


def gather(
    blocks: Iterable[Block], question: Question, on_block: Callable[[int], None] | None = None
) -> AuditResult:
    """Judge every penalty that the blocks have a gradient of; ``on_block`` hears how many are done."""
    start = time.perf_counter()
    stream = GramStream(question.num_blocks, (FULL, LOCAL), is_exact=question.is_enumerated)
    rows: list[Block] = []
    num_parameters = 0
    for done, block in enumerate(blocks, start=1):
        stream.add(block.gradients)
        num_parameters = len(block.gradients[FULL])
        rows.append(_Kept.of(block))
        if on_block is not None:
            on_block(done)
    gram = stream.finish()
    samples, exact_NT, forward_NT, prompt_N = _joined(rows)
    num_prompts = len(np.unique(prompt_N))
    return AuditResult(
        pair=Pair(
            policy=question.policy,
            reference=question.reference,
            prompts=question.prompts,
            num_prompts=num_prompts,
            num_completions=len(prompt_N),
            mean_tokens=samples.mean_tokens,
            temperature=question.temperature,
            num_blocks=question.num_blocks,
            is_enumerated=question.is_enumerated,
            num_parameters=num_parameters,
        ),
        divergences=Divergences(
            kl_token=mean_per_token(samples, exact_NT, prompt_N),
            kl_seq=mean_per_sequence(samples, exact_NT, prompt_N),
            forward_token=mean_per_token(samples, forward_NT, prompt_N),
        ),
        estimators=measure(samples, exact_NT, prompt_N),
        penalties=_penalties(gram),
        norms=_norms(gram, question),
        frameworks=survey(samples),
        seconds=time.perf_counter() - start,
        notes=question.notes,
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """A block without its gradients."""

    logprobs_NT: NDArray[np.floating]
    ref_logprobs_NT: NDArray[np.floating]
    exact_NT: NDArray[np.floating]
    forward_NT: NDArray[np.floating]
    mask_NT: NDArray[np.bool_]
    weight_N: NDArray[np.floating] | None
    prompt_N: NDArray[np.integer]
    gradients: Mapping[str, NDArray[np.floating]]

    @classmethod
    def of(cls, block: Block) -> _Kept:
        return cls(
            block.logprobs_NT,
            block.ref_logprobs_NT,
            block.exact_NT,
            block.forward_NT,
            block.mask_NT,
            block.weight_N,
            block.prompt_N,
            {},
        )


def _joined(
    rows: list[Block],
) -> tuple[Samples, NDArray[np.float64], NDArray[np.float64], NDArray[np.integer]]:
    width = max(row.mask_NT.shape[1] for row in rows)

    def column(name: str) -> NDArray[np.float64]:
        parts = [getattr(row, name) for row in rows]
        padded = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts]
        return np.concatenate(padded)

    weights = [row.weight_N for row in rows if row.weight_N is not None]
    samples = Samples(
        column("logprobs_NT").astype(np.float64),
        column("ref_logprobs_NT").astype(np.float64),
        column("mask_NT").astype(bool),
        np.concatenate(weights) if weights else None,
    )
    prompt_N = np.concatenate([row.prompt_N for row in rows])
    return (
        samples,
        column("exact_NT").astype(np.float64),
        column("forward_NT").astype(np.float64),
        prompt_N,
    )


def _penalties(gram: Gram) -> tuple[PenaltyRow, ...]:
    gap = align(gram, LOCAL, FULL)
    rows: list[PenaltyRow] = []
    for penalty in Penalty:
        if penalty.value in gram.names:
            full, local = align(gram, penalty.value, FULL), align(gram, penalty.value, LOCAL)
            rows.append(PenaltyRow(penalty, full, local, judge(penalty, full, local, gap)))
    return tuple(rows)


def _norms(gram: Gram, question: Question) -> Norms:
    return Norms(
        algorithm=question.algorithm,
        policy=length(gram, POLICY) if POLICY in gram.names else None,
        kl=length(gram, FULL),
        local=length(gram, LOCAL),
        setting=question.setting,
        beta=question.beta,
        coefficient=question.coefficient,
    )
