"""The trial's adapter and the start adapter as one: peft on the bare base gives the policy's log-probs."""

from __future__ import annotations

from pathlib import Path

import architectures
import fake_study
import pytest
import start_case
import torch

from kltune.errors import SpecError
from kltune.export.adapter import Adapter, write_peft
from kltune.export.winner import of_trial
from kltune.launch.export_peft import base_layers
from kltune.launch.export_start import start_note, with_start
from kltune.report.rows import read_study
from kltune.spec.model import AdaptersSpec, ModelSpec
from kltune.trainer.lora import AdapterStack, attach
from kltune.trainer.sources import find_model

pytestmark = pytest.mark.filterwarnings("ignore")  # peft's own


def adapter_of(stack: AdapterStack) -> Adapter:
    tensors = {name: tensor.numpy() for name, tensor in stack.tensors(0).items()}
    return Adapter(20, 4, 8, tuple(target.name for target in stack.targets), tensors)


@pytest.mark.parametrize(
    ("name", "config", "chosen"),
    [
        ("llama", {}, AdaptersSpec()),
        ("llama", {"target_modules": ["q_proj"]}, AdaptersSpec(include=("up_proj",))),
        ("gpt2-conv1d", {"fan_in_fan_out": True}, AdaptersSpec()),
    ],
)
@torch.no_grad()
def test_both_adapters_in_one_give_the_policy_on_the_bare_base(
    tmp_path: Path, name: str, config: dict[str, object], chosen: AdaptersSpec
) -> None:
    from peft import PeftModel

    base = start_case.saved_base(name, tmp_path / "base")
    start_case.saved_adapter(architectures.plain(name).eval(), tmp_path / "sft", **config)
    spec = ModelSpec(base=str(base), adapter=str(tmp_path / "sft"), rank=4)
    loaded = start_case.load(base, tmp_path / "sft")
    stack = attach(loaded.body, 1, 4, 8, chosen)
    stack.flat_KP[0] = 0.2 * torch.randn(
        stack.num_parameters, generator=torch.Generator().manual_seed(0)
    )
    with stack.use(stack.view([0])):
        policy = start_case.logits(loaded)
    assert float((policy - start_case.logits(loaded)).abs().max()) > 0.1
    layers = base_layers(spec, find_model(spec, Path))
    both = with_start(adapter_of(stack), layers, tmp_path / "sft")
    study = fake_study.write_study(tmp_path / "s", [fake_study.trial(0.1, steps=20)])
    made = write_peft(both, layers, of_trial(read_study(study), 0), tmp_path / "out")
    theirs = PeftModel.from_pretrained(architectures.plain(name).eval(), str(made.path)).eval()
    torch.testing.assert_close(start_case.logits(theirs), policy, rtol=1e-5, atol=1e-4)


def test_a_start_adapter_outside_the_body_is_refused(tmp_path: Path) -> None:
    base = start_case.saved_base("llama", tmp_path / "base")
    start_case.saved_adapter(
        architectures.plain("llama"), tmp_path / "sft", target_modules=["q_proj", "lm_head"]
    )
    spec = ModelSpec(base=str(base))
    layers = base_layers(spec, find_model(spec, Path))
    stack = attach(start_case.load(base, None).body, 1, 4, 8)
    with pytest.raises(SpecError, match=r"changes lm_head, outside the decoder body"):
        with_start(adapter_of(stack), layers, tmp_path / "sft")


def test_the_note_says_which_base_it_belongs_on() -> None:
    assert "belongs on the bare base" in start_note("sft")
