"""An audit made up from a toy of two tokens: what table, plot and command are shown with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kltune.audit.estimators import measure
from kltune.audit.gather import FULL as FULL_LABEL
from kltune.audit.gather import LOCAL as LOCAL_LABEL
from kltune.audit.gather import POLICY, Question
from kltune.audit.gram import Gram, GramStream
from kltune.audit.result import AuditResult, Divergences, Norms, Pair, PenaltyRow
from kltune.audit.statistics import Estimate, align
from kltune.audit.verdict import judge
from kltune.frameworks.samples import Samples
from kltune.frameworks.survey import survey
from kltune.spec.penalty import Penalty

FULL = np.array([0.37, -0.02, -0.17, -0.18, 0.2, -0.2])
LOCAL = np.array([0.37, -0.02, -0.17, -0.18, 0.05, -0.05])
GRADIENTS = {
    Penalty.K1_REWARD: FULL,
    Penalty.EXACT_FULL: FULL,
    Penalty.K2_LOSS: LOCAL,
    Penalty.EXACT_LOSS: LOCAL,
    Penalty.K3_LOSS: np.array([0.3, 0.1, -0.1, -0.3, 0.04, -0.04]),
    Penalty.K1_LOSS: np.zeros(6),
    Penalty.K3_REWARD: -0.35 * FULL,
}


def gram(noise: float, blocks: int = 24, seed: int = 0) -> Gram:
    """Products of ``blocks`` noisy gradients; without noise: enumerated."""
    draw = np.random.default_rng(seed)
    stream = GramStream(blocks, ("sequence-full", "token-local"), is_exact=noise == 0)
    for _ in range(blocks):
        common = noise * draw.normal(size=6)
        rows = {
            p.value: g + common * 0.3 + noise * draw.normal(size=6) for p, g in GRADIENTS.items()
        }
        rows["sequence-full"] = FULL + common * 0.3 + 0.3 * noise * draw.normal(size=6)
        rows["token-local"] = LOCAL + 0.1 * noise * draw.normal(size=6)
        stream.add(rows)
    return stream.finish()


def samples(weighted: bool = False) -> tuple[Samples, np.ndarray]:
    policy, reference = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    ratio = np.log(policy / reference)
    tokens = np.random.default_rng(0).choice(4, size=(64, 3), p=policy)
    mask = np.arange(3) < np.array([1, 2, 3, 3] * 16)[:, None]
    return Samples(np.log(policy)[tokens], np.log(reference)[tokens], mask), np.full(
        (64, 3), policy @ ratio
    )


def result(noise: float = 0.15) -> AuditResult:
    products = gram(noise)
    kept, exact = samples()
    rows = []
    for penalty in GRADIENTS:
        full = align(products, penalty.value, "sequence-full")
        local = align(products, penalty.value, "token-local")
        rows.append(
            PenaltyRow(
                penalty,
                full,
                local,
                judge(penalty, full, local, align(products, "token-local", "sequence-full")),
            )
        )
    return AuditResult(
        pair=Pair(
            "kitchen after 10 steps with beta 0", "kitchen's start", "train", 40, 64, 2.25, 1.0, 24,
            noise == 0, 6,
        ),
        divergences=Divergences(Estimate(0.456, 0.01), Estimate(1.03, 0.03), Estimate(0.5, 0.02)),
        estimators=measure(kept, exact, np.arange(64) // 4),
        penalties=tuple(rows),
        norms=Norms("grpo", Estimate(1.2, 0.1), Estimate(0.52, 0.02), Estimate(0.45, 0.01), "a recipe", 0.1, 0.2),
        frameworks=survey(kept),
        seconds=12.3,
        notes=("a note",),
    )  # fmt: skip


POLICY_P = np.array([0.4, 0.3, 0.2, 0.1])
REFERENCE = np.array([0.1, 0.2, 0.3, 0.4])
RATIO = np.log(POLICY_P / REFERENCE)
KL = float(POLICY_P @ RATIO)


@dataclass
class FakeBlock:
    """One-token answers of the toy: gradients with respect to the logits, by hand."""

    tokens: np.ndarray
    prompt_N: np.ndarray
    weight_N: np.ndarray | None = None
    width: int = 1

    @property
    def mask_NT(self) -> np.ndarray:
        return np.arange(self.width) < np.ones((len(self.tokens), 1))

    def spread(self, values: np.ndarray) -> np.ndarray:
        return np.pad(values[:, None], ((0, 0), (0, self.width - 1)), constant_values=np.nan)

    @property
    def logprobs_NT(self) -> np.ndarray:
        return self.spread(np.log(POLICY_P)[self.tokens])

    @property
    def ref_logprobs_NT(self) -> np.ndarray:
        return self.spread(np.log(REFERENCE)[self.tokens])

    @property
    def exact_NT(self) -> np.ndarray:
        return self.spread(np.full(len(self.tokens), KL))

    @property
    def forward_NT(self) -> np.ndarray:
        return self.spread(np.full(len(self.tokens), float(REFERENCE @ -RATIO)))

    @property
    def gradients(self) -> dict[str, np.ndarray]:
        score = np.eye(4)[self.tokens] - POLICY_P  # d log pi / d logits
        share = (
            np.full(len(self.tokens), 1 / len(self.tokens))
            if self.weight_N is None
            else self.weight_N
        )
        u = RATIO[self.tokens]
        by_token = {
            "k1-reward": u,
            "k2-loss": u,
            "k3-loss": 1 - np.exp(-u),
            "k1-loss": np.ones_like(u),
            "k3-reward": np.exp(-u) - 1 + u,
            POLICY: 3.0 * (self.tokens == 0),
        }
        exact = POLICY_P * (RATIO - KL)
        total = float(share.sum())
        return {name: (share * k) @ score for name, k in by_token.items()} | {
            FULL_LABEL: total * exact,
            LOCAL_LABEL: total * exact,
        }


def question(num_blocks: int, **changes: object) -> Question:
    fields = {
        "policy": "a", "reference": "b", "prompts": "toy", "temperature": 1.0, "num_blocks": num_blocks,
        "is_enumerated": False, "algorithm": "rloo", "setting": "mine", "beta": 0.1, "coefficient": 0.1,
    } | changes  # fmt: skip
    return Question(**fields)  # type: ignore[arg-type]
