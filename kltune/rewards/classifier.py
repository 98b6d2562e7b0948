"""A sequence classifier of Transformers as a reward: samples in, the chosen output of each text out."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
)

from kltune.errors import EnvironmentMissingError, KltuneError, SpecError
from kltune.rewards.classifier_text import ClassifierText
from kltune.rewards.context import RewardContext
from kltune.rewards.fingerprint import digest
from kltune.spec.rewards import RewardModelSpec
from kltune.tasks.protocol import Sample
from kltune.trainer.hub import first_words, refuse_pickled
from kltune.trainer.sources import pickle_words

LOG = logging.getLogger(__name__)

_LOADING: Final = (OSError, ValueError, ImportError, RuntimeError, KeyError, SafetensorError)
_WEIGHTS: Final = ("*.safetensors", "config.json", "tokenizer.json")


class RewardModel:
    """Reads the text of a sample with its own tokenizer; weights are loaded at the first call."""

    def __init__(self, spec: RewardModelSpec, context: RewardContext) -> None:
        """Read configuration and tokenizer.

        Raises:
            SpecError: no classifier, no such label, no template; a device that can't be meant.
            EnvironmentMissingError: not to be had from the hub; no such device here.
        """
        self.name = f"reward model {spec.model}"
        self._spec, self._field = spec, context.field
        folder = context.resolve(spec.model)
        self._is_hub = not folder.is_dir()
        self._source = spec.model if self._is_hub else str(folder.resolve())
        files = [] if self._is_hub else [p for w in _WEIGHTS for p in sorted(folder.glob(w))]
        left_out = () if self._is_hub else ("model",)
        self.fingerprint = digest(spec, *files, leave_out=left_out)
        config, tokenizer = self._read()
        _refuse_other_heads(config, spec, self._field)
        self._label = _label(config, spec, self._field)
        self._device = _device(spec.device or context.device, self._field)
        self.text = ClassifierText(spec, tokenizer, config, self._field)
        self._config = config
        self._model: PreTrainedModel | None = None

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Score each sample; NaN where its text has no token, or the output is not finite.

        Raises:
            SpecError: weights that don't make up this classifier.
            EnvironmentMissingError: weights not to be had from the hub.
        """
        rows = self.text.encode([self.text.write(sample) for sample in samples])
        scores = [math.nan] * len(rows)
        # By length: little padding, and equal texts in one batch.
        order = sorted((i for i, row in enumerate(rows) if row), key=lambda i: len(rows[i]))
        for start in range(0, len(order), self._spec.batch):
            part = order[start : start + self._spec.batch]
            for i, score in zip(part, self._scores([rows[i] for i in part]), strict=True):
                scores[i] = score if math.isfinite(score) else math.nan
        return scores

    @torch.no_grad()
    def _scores(self, rows: Sequence[Sequence[int]]) -> list[float]:
        model = self._loaded()
        width = max(map(len, rows))
        pad = self._pad_id(rows)
        # To the right: causal models never look there, and encoders are trained so.
        ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        logits = model(
            input_ids=ids.to(self._device), attention_mask=mask.to(self._device)
        ).logits.float()
        if self._spec.score == "probability":
            logits = logits.softmax(-1) if logits.shape[-1] > 1 else logits.sigmoid()
        return logits[:, self._label].tolist()

    def _pad_id(self, rows: Sequence[Sequence[int]]) -> int:
        """The classifier's own; where it has none, an id that is in no text.

        A causal classifier reads its score at the last token that is not the pad id.
        """
        text = self._config.get_text_config()
        own = text.pad_token_id
        if own is not None and 0 <= own < text.vocab_size:
            return own
        used = {i for row in rows for i in row}
        pad = next(i for i in range(text.vocab_size - 1, -1, -1) if i not in used)
        for config in (self._loaded().config, self._loaded().config.get_text_config()):
            config.pad_token_id = pad
        return pad

    def _loaded(self) -> PreTrainedModel:
        if self._model is None:
            self._model = self._load()
        return self._model

    def _load(self) -> PreTrainedModel:
        dtype = torch.bfloat16 if self._spec.dtype == "bfloat16" else torch.float32
        try:
            # Weights that a file lacks would be drawn from the global stream.
            with torch.random.fork_rng(devices=[]):
                model, found = cast(
                    "tuple[PreTrainedModel, Mapping[str, Any]]",
                    AutoModelForSequenceClassification.from_pretrained(
                        self._source, dtype=dtype, output_loading_info=True, use_safetensors=True
                    ),
                )
        except _LOADING as error:
            raise self._unloadable(error) from error
        missing = sorted(found["missing_keys"])
        if missing:
            raise SpecError(
                f"{self._field}.model: {self._spec.model} lacks the weights {', '.join(missing[:3])}"
                f"{' and more' if len(missing) > 3 else ''}: it was not trained as a classifier, and would "
                "score by chance"
            )
        LOG.info("loaded %s on %s", self.name, self._device)
        return model.eval().requires_grad_(False).to(self._device)  # pyright: ignore[reportArgumentType]

    def _read(self) -> tuple[Any, Any]:
        try:
            refuse_pickled(str(self._source), f"{self._field}.model")
            return (
                AutoConfig.from_pretrained(self._source),
                AutoTokenizer.from_pretrained(self._source),
            )
        except _LOADING as error:
            raise self._unloadable(error) from error

    def _unloadable(self, error: BaseException) -> KltuneError:
        first = first_words(error, switch=None)
        model = f"{self._field}.model: {self._spec.model!r}"
        if self._is_hub and not self._spec.model[:1].isalnum():  # ./mine, /mine, ~/mine
            return SpecError(f"{model}: there is no such folder")
        if self._is_hub:
            return EnvironmentMissingError(
                f"{model} is no folder here and could not be had from the hub: {first}"
            )
        names = [path.name for path in Path(self._source).iterdir()]
        is_safe = any(name.endswith(".safetensors") for name in names)
        advice = "" if is_safe else pickle_words(names)
        return SpecError(f"{model} could not be loaded: {first}{advice}")


def _refuse_other_heads(config: Any, spec: RewardModelSpec, field: str) -> None:
    heads = list(config.architectures or ())
    if heads and not any(head.endswith("ForSequenceClassification") for head in heads):
        raise SpecError(
            f"{field}.model: {spec.model} is a {', '.join(heads)}, not a ...ForSequenceClassification: it has no head "
            "that gives a score"
        )


def _label(config: Any, spec: RewardModelSpec, field: str) -> int:
    """Number of the output that is the score."""
    names: dict[int, str] = {int(i): str(name) for i, name in config.id2label.items()}
    listed = ", ".join(f"{i} ({name})" for i, name in sorted(names.items()))
    given = spec.label
    if given is None:
        if len(names) == 1:
            return 0
        raise SpecError(
            f"{field}.label: {spec.model} has {len(names)} outputs; say which is the score: {listed}"
        )
    found = [i for i, name in names.items() if given in (i, name)]
    if len(found) != 1:
        raise SpecError(f"{field}.label: {spec.model} has no output {given!r}; it has {listed}")
    return found[0]


def _device(name: str, field: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SpecError(f"{field}.device: must be cpu, cuda or cuda:N (got {name!r})") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EnvironmentMissingError(
            f"{field}.device: {name} is not here ({torch.cuda.device_count()} CUDA device(s))"
        )
    return device
