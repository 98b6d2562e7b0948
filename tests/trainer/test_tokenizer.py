from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.spec.model import ModelSpec
from kltune.trainer.sources import ModelSource
from kltune.trainer.tokenizer import load_tokenizer

SPEC = ModelSpec(base="x/y")


def test_a_tokenizer_is_loaded_without_its_model(tmp_path: Path) -> None:
    tiny.tokenizer().save_pretrained(tmp_path)
    found = load_tokenizer(SPEC, ModelSource(str(tmp_path), None, "folder"))
    assert found.encode("w1 w2") == [3, 4]


def test_a_folder_without_one_is_the_specs_fault_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="the tokenizer of 'x/y' could not be loaded") as caught:
        load_tokenizer(SPEC, ModelSource(str(tmp_path), None, "folder"))
    assert "\n" not in str(caught.value)


def test_a_hub_that_does_not_answer_is_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EnvironmentMissingError, match="from the hub"):
        load_tokenizer(SPEC, ModelSource("x/surely-not-here", None, "hub"))
