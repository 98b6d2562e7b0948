"""A reward model learned from pairwise comparisons: a base model in, a scorer out.

The mechanism behind ``proxy: {learned: {from: gold, comparisons: N, label_noise: p}}``: any
gold function, any causal language model. The trunk starts from the base like real reward
models, and is trained on the base's own samples only, so what it says about answers that the
base hardly ever gives is a guess. Those are its blind spots; nobody put them in.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from kltune.errors import SpecError
from kltune.rewards.comparisons import Comparison
from kltune.tasks.protocol import Prompt, Sample
from kltune.trainer.encode import pad_left
from kltune.trainer.fused.model import fuse
from kltune.trainer.hub import refuse_pickled

EncodePrompt = Callable[[Prompt], list[int]]
SCHEMA: Final = 1
_Item = TypeVar("_Item")
_FACTS: Final = "reward.json"
_HEAD: Final = "head.safetensors"


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How a reward model is fitted to its comparisons."""

    steps: int = 300
    batch_size: int = 64
    """Comparisons per step."""
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    layers: int | None = None
    """Keep only the first so many trunk layers: a smaller proxy. None keeps all."""
    held_out: float = 0.1
    """Share of the comparisons kept apart to measure accuracy."""


@dataclass(frozen=True, slots=True)
class TrainingFacts:
    """What the fit was and how well it went; travels with the weights."""

    comparisons: int
    """Comparisons trained on, after ties were dropped and some were held out."""
    label_noise: float
    """Share of labels that was asked to be flipped."""
    held_out_accuracy: float
    """Share of held-out comparisons ordered as their (noisy) label says; at best about
    1 - label_noise."""
    seed: int
    mean: float
    """Mean of the raw score over the base samples of the comparisons."""
    std: float
    """Standard deviation of the same: one unit of the proxy."""


class LearnedReward:
    """Scores completions by a trunk and a linear head read at the last valid token.

    The unit of the score is the standard deviation of the proxy under the reference: over the
    base samples that it was trained on, scores have mean 0 and standard deviation 1.
    """

    name = "learned"

    def __init__(
        self,
        trunk: PreTrainedModel,
        head: nn.Linear,
        facts: TrainingFacts,
        encode_prompt: EncodePrompt | None = None,
        batch_size: int = 256,
    ) -> None:
        """Own ``trunk`` and ``head``; ``encode_prompt`` gives the prompt ids the policy sees."""
        self.trunk = trunk.eval().requires_grad_(False)
        self.head = head.eval().requires_grad_(False)
        self.facts = facts
        self.encode_prompt = encode_prompt
        self.batch_size = batch_size
        self._own_forward = fuse(self.trunk, self.trunk, torch.float32)

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Score ``samples``, each independent of its neighbours in the batch."""
        if self.encode_prompt is None:
            raise SpecError("a learned reward needs encode_prompt before it can score samples")
        return self.score_tokens(
            [self.encode_prompt(s.prompt) + list(s.token_ids) for s in samples]
        )

    @torch.no_grad()
    def score_tokens(self, sequences: Sequence[Sequence[int]]) -> list[float]:
        """Score whole sequences, prompt ids followed by completion ids."""
        raw = torch.tensor(
            [
                score
                for part in _chunks(sequences, self.batch_size)
                for score in self._raw(part).tolist()
            ]
        )
        return ((raw - self.facts.mean) / self.facts.std).tolist()

    def _raw(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        if self._own_forward is None:
            return raw_scores(self.trunk, self.head, sequences)
        padded = pad_left(sequences, 0, self.trunk.device)
        return self.head(self._own_forward.last_states(padded)).squeeze(-1)

    def save(self, folder: Path) -> None:
        """Write trunk, head and facts to ``folder``."""
        self.trunk.save_pretrained(folder)
        save_file(dict(self.head.state_dict()), folder / _HEAD)
        record = {"schema": SCHEMA, "kind": "kltune.learned-reward", **asdict(self.facts)}
        text = json.dumps(record, indent=2, allow_nan=False)
        (folder / _FACTS).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, encode_prompt: EncodePrompt | None = None) -> LearnedReward:
        """Read what ``save`` wrote, in fp32; SpecError if it is absent or of another schema."""
        facts = _read_facts(folder)
        refuse_pickled(str(folder), "task.proxy")
        trunk = AutoModel.from_pretrained(folder, dtype=torch.float32, use_safetensors=True)
        head_state = load_file(folder / _HEAD)
        head = nn.Linear(head_state["weight"].shape[1], 1)
        head.load_state_dict(head_state)
        return cls(trunk, head, facts, encode_prompt)


def fit_learned_reward(
    base_model: PreTrainedModel,
    comparisons: Sequence[Comparison],
    label_noise: float,
    settings: FitSettings,
    seed: int,
) -> LearnedReward:
    """Fit a reward model to ``comparisons`` with the Bradley-Terry loss.

    ``base_model`` is not touched: its body is copied, in fp32, and the whole copy is trained.
    ``label_noise`` is recorded, not applied: labels come noisy from ``noisy_labels``.
    """
    if len(comparisons) < 2:
        raise SpecError(
            f"a learned reward needs at least 2 untied comparisons, got {len(comparisons)}"
        )
    num_held_out = max(1, round(settings.held_out * len(comparisons)))
    held_out, training = comparisons[:num_held_out], comparisons[num_held_out:]
    trunk = copy_trunk(base_model, settings.layers)
    head = nn.Linear(trunk.config.get_text_config().hidden_size, 1, device=trunk.device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    # Only dropout, where a base has it, draws from the global stream.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _train(trunk, head, training, settings, seed)
    accuracy, mean, std = _measure(trunk, head, held_out, training)
    facts = TrainingFacts(len(training), label_noise, accuracy, seed, mean, std)
    return LearnedReward(trunk, head, facts)


def copy_trunk(base_model: PreTrainedModel, layers: int | None) -> PreTrainedModel:
    """Copy the body of ``base_model`` to fp32, cut after ``layers`` layers."""
    body = cast(PreTrainedModel, base_model.base_model)
    trunk = copy.deepcopy(body).float().requires_grad_(True)
    if layers is None:
        return trunk
    config = trunk.config.get_text_config()
    if not 1 <= layers <= config.num_hidden_layers:
        raise SpecError(f"layers must be 1 to {config.num_hidden_layers}, got {layers}")
    trunk.layers = cast(nn.ModuleList, trunk.layers)[:layers]
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = config.layer_types[:layers]
    return trunk


def raw_scores(
    trunk: PreTrainedModel, head: nn.Linear, sequences: Sequence[Sequence[int]]
) -> Tensor:
    """Score a batch, shape (B,), not standardised; differentiable.

    Padding goes to the left, so the last column is every sequence's last token.
    """
    width = max(len(ids) for ids in sequences)
    # Id 0 exists in every vocabulary; the mask keeps padding out of sight whatever its id.
    ids_BT = torch.tensor([[0] * (width - len(ids)) + list(ids) for ids in sequences])
    mask_BT = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in sequences])
    positions_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)
    hidden_BTD = trunk(
        input_ids=ids_BT.to(trunk.device),
        attention_mask=mask_BT.to(trunk.device),
        position_ids=positions_BT.to(trunk.device),
        use_cache=False,
    ).last_hidden_state
    return head(hidden_BTD[:, -1]).squeeze(-1)


def _train(
    trunk: PreTrainedModel,
    head: nn.Linear,
    comparisons: Sequence[Comparison],
    settings: FitSettings,
    seed: int,
) -> None:
    trunk.train()
    parameters = [*trunk.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(
        parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    generator = torch.Generator().manual_seed(seed)
    for _ in range(settings.steps):
        picks = torch.randint(len(comparisons), (settings.batch_size,), generator=generator)
        margin = _margins(trunk, head, [comparisons[i] for i in picks.tolist()])
        loss = -F.logsigmoid(margin).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    trunk.eval()


def _margins(trunk: PreTrainedModel, head: nn.Linear, batch: Sequence[Comparison]) -> Tensor:
    """Score of the answer labelled better minus the other's, shape (B,)."""
    better = [(*c.prompt_ids, *(c.a_ids if c.a_is_better else c.b_ids)) for c in batch]
    worse = [(*c.prompt_ids, *(c.b_ids if c.a_is_better else c.a_ids)) for c in batch]
    scores = raw_scores(trunk, head, better + worse)
    return scores[: len(batch)] - scores[len(batch) :]


@torch.no_grad()
def _measure(
    trunk: PreTrainedModel,
    head: nn.Linear,
    held_out: Sequence[Comparison],
    training: Sequence[Comparison],
) -> tuple[float, float, float]:
    """Held-out accuracy, and mean and standard deviation of the raw score over base samples."""
    margins = torch.cat([_margins(trunk, head, part) for part in _chunks(held_out, 128)])
    everything = [
        (*c.prompt_ids, *ids) for c in (*held_out, *training) for ids in (c.a_ids, c.b_ids)
    ]
    raw = torch.cat([raw_scores(trunk, head, part) for part in _chunks(everything, 256)])
    return (margins > 0).float().mean().item(), raw.mean().item(), raw.std().item()


def _read_facts(folder: Path) -> TrainingFacts:
    path = folder / _FACTS
    if not path.is_file():
        raise SpecError(f"{folder}: no learned reward here ({_FACTS} is absent)")
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    schema, kind = record.pop("schema", None), record.pop("kind", None)
    if kind != "kltune.learned-reward" or schema != SCHEMA:
        raise SpecError(
            f"{path}: schema {schema!r} of {kind!r}, this version reads schema {SCHEMA}"
        )
    return TrainingFacts(**record)


def _chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
