"""A model's address in, its tokenizer out, without the model."""

from __future__ import annotations

from typing import Any

from transformers import AutoTokenizer

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.spec.model import ModelSpec
from kltune.trainer.hub import first_words, in_reach, trouble_words
from kltune.trainer.sources import ModelSource


def load_tokenizer(spec: ModelSpec, source: ModelSource) -> Any:
    """The tokenizer that :func:`kltune.trainer.model.load_model` would load.

    Raises:
        SpecError: the files hold none.
        EnvironmentMissingError: a hub that can't be reached.
    """
    gguf = {} if source.gguf_file is None else {"gguf_file": source.gguf_file}
    source = in_reach(source)
    flags = {"trust_remote_code": spec.trust_remote_code, **source.flags}
    try:
        return AutoTokenizer.from_pretrained(source.pretrained, **flags, **gguf)
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        first = first_words(error)
        told = f"model.base: the tokenizer of {spec.base!r} could not be loaded"
        if source.kind == "hub":
            raise EnvironmentMissingError(
                f"{told} from the hub: {trouble_words(source, first)}"
            ) from error
        raise SpecError(f"{told}: {first}") from error
