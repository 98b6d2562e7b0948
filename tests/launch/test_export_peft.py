"""The adapter of a study's winner as `peft` loads it: the same log-probs; and what is refused."""

from __future__ import annotations

from pathlib import Path

import fake_study
import pytest
import torch
from safetensors.torch import load_file

from kltune.errors import SpecError, StudyError
from kltune.export.setting import Winner
from kltune.export.winner import of_trial
from kltune.launch.export_peft import base_layers, export_peft
from kltune.report.rows import read_study
from kltune.spec.model import ModelSpec
from kltune.spec.trial import TrialSpec
from kltune.trainer.checkpoint import save_adapter
from kltune.trainer.controller import ControlState
from kltune.trainer.lora import attach
from kltune.trainer.model import LoadedModel, load_model
from kltune.trainer.slot import SlotState
from kltune.trainer.sources import ModelSource, resolve_model

BASE = "builtin:kitchen"
IDS = torch.tensor([[5, 9, 11, 4, 17, 20, 3, 1], [8, 2, 30, 31, 6, 7, 12, 1]])


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return fake_study.write_study(tmp_path / "kitchen", [fake_study.trial(0.1, steps=20)])


def winner(study: Path) -> Winner:
    return of_trial(read_study(study), 0)


def source() -> ModelSource:
    return resolve_model(BASE, None, Path)


def logprobs(loaded: LoadedModel) -> torch.Tensor:
    mask, positions = torch.ones_like(IDS), torch.arange(IDS.shape[1]).expand_as(IDS)
    return loaded.logits(loaded.hidden(IDS, mask, positions), 1.0).log_softmax(-1)


@torch.no_grad()
def trained(best: Path, spec: TrialSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """Save an adapter that does something; the log-probs of the policy with it and without."""
    loaded = load_model(ModelSpec(base=BASE), source(), "cpu", "fp32")
    stack = attach(loaded.body, num_slots=2, rank=8, alpha=24)  # alpha / rank = 3
    stack.reset(1, seed=3)
    stack.flat_KP[1] += 0.02 * torch.randn(
        stack.num_parameters, generator=torch.Generator().manual_seed(0)
    )
    save_adapter(best, 1, SlotState(0, spec, 20, ControlState(0.1)), stack)
    with stack.use(stack.view([1])):
        policy = logprobs(loaded)
    return policy, logprobs(loaded)


@pytest.mark.filterwarnings("ignore")
def test_peft_gives_the_same_logprobs_on_the_same_base(study: Path, tmp_path: Path) -> None:
    from peft import AutoPeftModelForCausalLM, PeftModel
    from transformers import AutoModelForCausalLM

    chosen = winner(study)
    policy, reference = trained(study / "trials" / "00000" / "checkpoints" / "best", chosen.setting)
    assert float((policy - reference).abs().max()) > 0.05, "the adapter must do something"
    made = export_peft(study, chosen, tmp_path / "adapter")
    assert made.step == 20
    model = AutoModelForCausalLM.from_pretrained(source().pretrained, dtype=torch.float32)
    loaded = PeftModel.from_pretrained(model, str(made.path)).eval()
    again = AutoPeftModelForCausalLM.from_pretrained(str(made.path), dtype=torch.float32).eval()
    with torch.no_grad():
        for one in (loaded, again):
            theirs = one(input_ids=IDS).logits.float().log_softmax(-1)
            assert float((theirs - policy).abs().max()) < 1e-5
    held = {name for name, _ in loaded.named_parameters() if "lora_" in name}
    saved = load_file(made.path / "adapter_model.safetensors")
    assert {name.replace(".default.", ".") for name in held} == set(saved)


def test_the_body_and_the_layers_of_the_base_are_named_without_its_weights() -> None:
    layers = base_layers(ModelSpec(base=BASE), source())
    assert layers.body == "model"
    assert "lm_head" in layers.linear
    assert layers.linear["model.layers.0.mlp.down_proj"] == (96, 256)


def test_a_trial_without_a_checkpoint_is_refused(study: Path, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no adapter to export"):
        export_peft(study, winner(study), tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    where = ModelSource(str(tmp_path), None, "folder")
    with pytest.raises(SpecError, match=r"the configuration of .* could not be loaded"):
        base_layers(ModelSpec(base=str(tmp_path)), where)
