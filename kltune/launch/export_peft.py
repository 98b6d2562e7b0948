"""A study and its winner in, the winner's adapter as a folder of PEFT out; the base's weights are not loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.export.adapter import BaseLayers, PeftFolder, read_adapter, write_peft
from kltune.export.setting import Winner
from kltune.launch.export_start import start_note, with_start
from kltune.launch.writable import takes_files
from kltune.metrics.jsonl import read_json
from kltune.spec.load import LoadedSpec, from_resolved, resolve_path
from kltune.spec.model import ModelSpec
from kltune.trainer.sources import ModelSource, find_model


def export_peft(study: Path, winner: Winner, out: Path) -> PeftFolder:
    """Write the adapter of the winner's trial into ``out``.

    Raises:
        StudyError: the trial's best checkpoint is gone.
        SpecError: all weights were trained, the base is not where the spec says, or ``out`` is taken.
        RunError: the checkpoint is damaged or does not fit the base.
        EnvironmentMissingError: the base is not to be had here.
    """
    spec = from_resolved(read_json(study / "resolved.json"))
    adapter = read_adapter(study, winner)
    if not takes_files(out):
        raise SpecError(f"--out: {out} can't be written to; give a folder that can")
    loaded = LoadedSpec(spec, "", study / "spec.yaml")
    source = find_model(spec.model, lambda text: resolve_path(loaded, text))
    base = base_layers(spec.model, source)
    if source.adapter is None:
        return write_peft(adapter, base, winner, out)
    written = write_peft(with_start(adapter, base, Path(source.adapter)), base, winner, out)
    return replace(written, warnings=(*written.warnings, start_note(source.adapter)))


def base_layers(spec: ModelSpec, source: ModelSource) -> BaseLayers:
    """Names and shapes of the base's linear layers, from its configuration alone.

    Raises:
        EnvironmentMissingError: a hub that can't be reached.
        SpecError: the configuration is not that of a causal language model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from kltune.trainer.adapted_layers import size_of
    from kltune.trainer.runnable import body_of

    gguf = {} if source.gguf_file is None else {"gguf_file": source.gguf_file}
    trust = spec.trust_remote_code
    try:
        config = AutoConfig.from_pretrained(source.pretrained, trust_remote_code=trust, **gguf)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust)
    except (OSError, ValueError, ImportError) as error:
        first = str(error).strip().splitlines()[0]
        if source.kind == "hub":
            raise EnvironmentMissingError(
                f"model.base: the configuration of {spec.base!r} could not be loaded from the hub: {first}"
            ) from error
        raise SpecError(
            f"model.base: the configuration of {spec.base!r} could not be loaded: {first}"
        ) from error
    modules = dict(model.named_modules())
    own_body = body_of(model)
    body = next(name for name, module in modules.items() if module is own_body)
    sizes = {name: size_of(module) for name, module in modules.items()}
    linear = {name: (size[1], size[0]) for name, size in sizes.items() if size is not None}
    return BaseLayers(source.pretrained, source.gguf_file, body, linear)
