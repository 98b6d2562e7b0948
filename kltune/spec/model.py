"""Which language model is trained, and which of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from kltune.spec.closed import Closed, FieldProblems

BUILTIN_MODELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kitchen": "tasks/kitchen/weights/base",
        "kitchen-small": "tasks/kitchen/weights/base-small",
        "kitchen-large": "tasks/kitchen/weights/base-large",
    }
)
"""Models that ship with kltune and the folder of each within the package."""

REBUILD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kitchen": "kltune task rebuild kitchen",
        "kitchen-small": "kltune task rebuild kitchen --size small",
        "kitchen-large": "kltune task rebuild kitchen --size large",
    }
)
"""The command that makes the weights of each."""


class AdaptersSpec(Closed):
    """Which linear layers get LoRA adapters, by the ends of their names (``q_proj``, ``mlp.up_proj``)."""

    include: tuple[str, ...] = ()
    """These and no others; empty: every linear layer of the blocks but routers."""

    exclude: tuple[str, ...] = ()
    """Not these."""


class ModelSpec(Closed):
    """The frozen base and the adapters on it."""

    base: str = Field(min_length=1)
    """``builtin:NAME``, ``package:NAME`` (a GGUF inside an installed package), a folder, or a hub id."""

    gguf_file: str | None = None
    """File name of the GGUF inside a folder or hub repository."""

    finetune: Literal["lora", "full"] = "lora"
    """What is trained: low-rank adapters on every linear layer of the blocks, or every weight (one slot)."""

    adapter: str | None = None
    """A PEFT folder (LoRA, safetensors) that the base starts with; the reference includes it. Not what is trained."""

    adapters: AdaptersSpec = AdaptersSpec()
    """Which linear layers are trained under ``finetune: lora``."""

    rank: PositiveInt = 8
    """LoRA rank r."""

    alpha: PositiveInt | None = None
    """LoRA alpha; the adapter is scaled by alpha / rank. Default: 2 x rank."""

    dtype: Literal["auto", "float32", "bfloat16"] = "float32"
    """Precision of the frozen base; adapters, log-probs and reductions stay float32.

    auto: bfloat16 where a CUDA device computes in it natively and adapters are trained, else float32.
    """

    chat: Literal["auto", "always", "never"] = "auto"
    """Whether prompts go through the tokenizer's chat template; auto: if it has one."""

    system: str | None = None
    """System message put before every prompt where a chat template is used."""

    thinking: Literal["default", "on", "off"] = "default"
    """Whether a thinking model is asked to think, by the switch of its chat template; default: as the template has it."""

    answer_after: str | None = Field(default=None, min_length=1)
    """The mark that ends the thinking, e.g. ``</think>``: scorers see what comes after the first one, and nothing
    where it never came. None: they see the whole completion. A learned proxy reads every token."""

    trust_remote_code: bool = False
    """Run model code from the hub. Off unless asked."""

    @model_validator(mode="after")
    def _full_weights_are_wide(self) -> Self:
        if self.finetune == "full" and self.dtype == "bfloat16":
            # Small steps vanish in bf16, and float32 copies of a bf16 base differ from it at step 0.
            raise FieldProblems(
                (
                    "dtype",
                    "finetune: full trains float32 weights (got bfloat16); for bf16 "
                    "arithmetic set trainer.precision: bf16",
                )
            )
        if self.finetune == "full" and self.adapters != AdaptersSpec():
            raise FieldProblems(
                ("adapters", "says which layers get LoRA adapters, which finetune: full has not")
            )
        return self

    @property
    def lora_alpha(self) -> int:
        """The alpha in force."""
        return 2 * self.rank if self.alpha is None else self.alpha
