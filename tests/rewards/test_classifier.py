"""Sequence classifiers of Transformers as rewards, on tiny random ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from reward_case import WORDS, save_classifier
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
)

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.rewards.classifier import RewardModel
from kltune.rewards.context import RewardContext
from kltune.spec.rewards import RewardModelSpec
from kltune.tasks.protocol import Prompt, Sample

NUM = len(WORDS)
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": NUM}
Made = Callable[[Path], Path]


def bert(folder: Path, **labels: Any) -> Path:
    config = BertConfig(
        **SMALL, intermediate_size=32, pad_token_id=0, **(labels or {"num_labels": 1})
    )
    return save_classifier(folder, config, BertForSequenceClassification)


def llama(folder: Path, **fields: Any) -> Path:
    config = LlamaConfig(
        **SMALL, intermediate_size=32, num_labels=1, bos_token_id=1, eos_token_id=2,
        **{"pad_token_id": 0, **fields},
    )  # fmt: skip
    return save_classifier(folder, config, LlamaForSequenceClassification, bos=True)


def without_pad(folder: Path) -> Path:
    return llama(folder, pad_token_id=None)


def gpt2(folder: Path) -> Path:
    """No pad token at all, absolute positions, weights as Conv1D."""
    config = GPT2Config(
        vocab_size=NUM, n_positions=32, n_embd=16, n_layer=2, n_head=2, num_labels=1,
        bos_token_id=2, eos_token_id=2, pad_token_id=None,
    )  # fmt: skip
    return save_classifier(folder, config, GPT2ForSequenceClassification, pad=False)


def reward(folder: Path, **fields: Any) -> RewardModel:
    spec = RewardModelSpec.model_validate({"model": "rm", "join": " ", **fields})
    return RewardModel(spec, RewardContext("task.proxy", lambda _: folder))


def samples(*texts: str) -> list[Sample]:
    return [Sample(Prompt("p", "a b"), text, (7, 7), True) for text in texts]


TEXTS = ("c", "d e f g h i", "", "c <eos>", "p o n m l k j i h g f e d c b a", "c")


@pytest.mark.parametrize("make", [bert, llama, without_pad, gpt2])
def test_a_score_does_not_depend_on_its_neighbours(tmp_path: Path, make: Made) -> None:
    made = reward(make(tmp_path), batch=4)
    together = made(samples(*TEXTS))
    alone = [made(samples(text))[0] for text in TEXTS]
    assert together == pytest.approx(alone, abs=1e-5)
    assert together[0] == together[-1]
    assert len({round(score, 4) for score in together}) == 5


def test_it_is_what_transformers_says_of_the_text_alone(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = llama(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        expected = model(**tokenizer("a b c d", return_tensors="pt")).logits[0, 0].item()
    assert reward(folder)(samples("c d")) == pytest.approx([expected], abs=1e-5)


def test_a_label_is_chosen_by_number_or_name(tmp_path: Path) -> None:
    folder = bert(tmp_path, id2label={0: "NEG", 1: "POS"}, label2id={"NEG": 0, "POS": 1})
    logit, named = reward(folder, label=1), reward(folder, label="POS")
    assert logit(samples("c d")) == named(samples("c d"))
    pair = [reward(folder, label=i, score="probability")(samples("c d"))[0] for i in (0, 1)]
    assert sum(pair) == pytest.approx(1)
    assert all(0 < share < 1 for share in pair)
    with pytest.raises(
        SpecError, match=r"task\.proxy\.label: rm has 2 outputs; .*: 0 \(NEG\), 1 \(POS\)"
    ):
        reward(folder)
    for wrong in (2, "pos"):
        with pytest.raises(SpecError, match=rf"no output {wrong!r}; it has 0 \(NEG\)"):
            reward(folder, label=wrong)


def test_one_output_as_a_probability_is_its_sigmoid(tmp_path: Path) -> None:
    folder = llama(tmp_path)
    (logit,) = reward(folder)(samples("c"))
    assert reward(folder, score="probability")(samples("c")) == pytest.approx(
        [1 / (1 + math.exp(-logit))]
    )


def test_a_language_model_is_refused_since_its_head_would_be_drawn_by_chance(
    tmp_path: Path,
) -> None:
    config = LlamaConfig(**SMALL, intermediate_size=32)
    folder = save_classifier(tmp_path, config, LlamaForCausalLM)
    with pytest.raises(SpecError, match=r"task\.proxy\.model: rm is a LlamaForCausalLM, not a"):
        reward(folder)


def test_weights_without_a_head_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = llama(tmp_path)
    state = load_file(folder / "model.safetensors")
    del state["score.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    before = torch.random.get_rng_state()
    with pytest.raises(
        SpecError, match=r"lacks the weights score\.weight: .* would score by chance"
    ):
        reward(folder)(samples("c"))
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_text_without_a_token_can_not_be_scored(tmp_path: Path) -> None:
    made = reward(gpt2(tmp_path), sees="completion")
    scores = made(samples("", "c"))
    assert math.isnan(scores[0])
    assert math.isfinite(scores[1])


def test_what_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match=r"task\.proxy\.model: 'rm' could not be loaded"):
        reward(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        EnvironmentMissingError, match="is no folder here and could not be had from the hub"
    ):
        reward(tmp_path / "none")
    with pytest.raises(SpecError, match=r"device: must be cpu, cuda or cuda:N \(got 'gpu'\)"):
        reward(llama(tmp_path / "l"), device="gpu")


def test_a_path_that_is_no_folder_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    context = RewardContext("task.gold", lambda text: tmp_path / text)
    made = RewardModelSpec(model="./rm")
    with pytest.raises(SpecError, match=r"task\.gold\.model: '\./rm': there is no such folder"):
        RewardModel(made, context)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_here_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentMissingError, match=r"device: cuda:0 is not here \(0 CUDA device"
    ):
        reward(llama(tmp_path), device="cuda:0")


def test_other_weights_are_another_judgement(tmp_path: Path) -> None:
    one, other = llama(tmp_path / "a"), bert(tmp_path / "b")
    assert reward(one).fingerprint == reward(one, batch=3).fingerprint
    assert reward(one).fingerprint != reward(other).fingerprint
    assert reward(one).fingerprint != reward(one, truncate="right").fingerprint
