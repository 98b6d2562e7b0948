"""A YAML file and ``--set`` overrides in, a checked StudySpec out; every mistake in one message."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from pydantic import ValidationError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from kltune.errors import SpecError
from kltune.spec.problems import Problem, describe, message
from kltune.spec.study import StudySpec
from kltune.spec.yaml_text import parse_yaml, read_bounded

SCHEMA: Final = 1
"""Version of resolved.json."""


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A spec and where it came from."""

    spec: StudySpec
    text: str
    """The file as it stands, overrides not applied."""
    path: Path
    overrides: tuple[str, ...] = ()
    """``key.sub=value``, in order."""


def load_spec(path: Path, overrides: Sequence[str] = ()) -> LoadedSpec:
    """Read ``path`` as YAML 1.2 (``1e-4`` is a number, ``no`` a word), apply overrides, check it.

    An override is ``key.sub=value``, the value in YAML; later ones win.

    Raises:
        SpecError: the file can't be read, or anything in it or in an override is wrong. All
            mistakes are in the one message.
    """
    text = _read(path)
    raw, problems = _override(_parse(path, text), overrides)
    spec, found = _validate(raw)
    if spec is None or problems:
        raise SpecError(message(path, [*problems, *found]))
    return LoadedSpec(spec=spec, text=text, path=path, overrides=tuple(overrides))


def with_overrides(spec: StudySpec, overrides: Sequence[str]) -> StudySpec:
    """A spec with ``key.sub=value`` laid on top of everything in force.

    Raises `SpecError` with all mistakes in one message.
    """
    raw, problems = _override(spec.model_dump(mode="json", by_alias=True), overrides)
    changed, found = _validate(raw)
    if changed is None or problems:
        raise SpecError(message("--set", [*problems, *found]))
    return changed


def resolve_path(loaded: LoadedSpec, text: str) -> Path:
    """Find a path named in a spec: from the current folder, else from the spec's own.

    Absolute, whether it exists or not.
    """
    path = Path(text).expanduser()
    beside_spec = loaded.path.absolute().parent / path
    return beside_spec if beside_spec.exists() and not path.exists() else path.absolute()


def resolved(spec: StudySpec) -> dict[str, Any]:
    """Everything in force, defaults included, as strict JSON: what resolved.json holds."""
    return {"schema": SCHEMA, **spec.model_dump(mode="json", by_alias=True)}


def from_resolved(data: Mapping[str, Any]) -> StudySpec:
    """Read back what ``resolved`` gave.

    Raises:
        SpecError: another schema, or not a spec.
    """
    if data.get("schema") != SCHEMA:
        raise SpecError(
            f"resolved.json: schema {data.get('schema')!r} can't be read (this version of kltune "
            f"reads {SCHEMA})"
        )
    spec, problems = _validate({key: value for key, value in data.items() if key != "schema"})
    if spec is None:
        raise SpecError(message("resolved.json", problems))
    return spec


def _read(path: Path) -> str:
    try:
        return read_bounded(path).decode("utf-8")
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file{_similar(path)}") from None
    except IsADirectoryError:
        raise SpecError(f"{path}: is a folder; a spec is a YAML file") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except ValueError as error:
        raise SpecError(f"{path}: {error}") from None
    except OSError as error:
        raise SpecError(f"{path}: can't be read: {error.strerror}") from None


def _similar(path: Path) -> str:
    folder = path.parent
    others = [p.name for p in folder.glob("*.y*ml")] if folder.is_dir() else []
    close = difflib.get_close_matches(path.name, others, n=1)
    return f"; did you mean {folder / close[0]}?" if close else ""


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        raw = _yaml(text)
    except ValueError as error:
        raise SpecError(f"{path}: {error}") from None
    if raw is None:
        needed = [name for name, field in StudySpec.model_fields.items() if field.is_required()]
        raise SpecError(f"{path}: is empty; a spec needs at least {', '.join(needed)}")
    if not isinstance(raw, dict):
        raise SpecError(f"{path}: must be `key: value` lines (got a {type(raw).__name__})")
    return cast("dict[str, Any]", raw)


def _yaml(text: str) -> Any:
    """Parse one YAML document.

    Raises:
        ValueError: what is wrong and, where known, in which line and column.
    """
    try:
        return parse_yaml(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        raise ValueError(f"{place}{error.problem or error.context}") from None
    except YAMLError as error:
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from None


def _override(
    raw: dict[str, Any], overrides: Sequence[str]
) -> tuple[dict[str, Any], list[Problem]]:
    problems: list[Problem] = []
    for override in overrides:
        key, equals, value = override.partition("=")
        keys = key.strip().split(".")
        if not equals or not all(keys):
            problems.append(Problem(f"--set {override}", "must look like key.sub=value"))
            continue
        try:
            raw = _with(raw, keys, _yaml(value))
        except ValueError as error:
            problems.append(Problem(f"--set {override}", str(error)))
    return raw, problems


def _with(section: dict[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """A copy of ``section`` with one value set; YAML anchors may share parts, so nothing is mutated."""
    key, *rest = keys
    if not rest:
        return {**section, key: value}
    inner = section.get(key)
    if not isinstance(inner, dict | None):
        raise ValueError(f"{key} is not a section here (it is {inner!r}): set {key} as a whole")
    return {**section, key: _with(cast("dict[str, Any]", inner or {}), rest, value)}


def _validate(raw: Any, *, look_again: bool = True) -> tuple[StudySpec | None, list[Problem]]:
    try:
        return StudySpec.model_validate(raw), []
    except ValidationError as error:
        errors = error.errors(include_url=False)
    unknown = [e for e in errors if e["type"] in ("extra_forbidden", "invalid_key")]
    if not (unknown and look_again):
        return None, describe(errors, StudySpec)
    # pydantic skips the rules between fields of a section that holds an unknown key: look again
    # without these keys, so that one run shows all mistakes.
    cleaned = raw
    for extra in unknown:
        cleaned = _without(cleaned, extra["loc"])
    _, others = _validate(cleaned, look_again=False)
    return None, [*describe(unknown, StudySpec), *others]


def _without(data: Any, location: Sequence[int | str]) -> Any:
    """A copy of ``data`` without the key at ``location``; branch names in it are passed over."""
    key, *rest = location
    if isinstance(data, dict):
        section = cast("dict[Any, Any]", data)
        if not rest:
            return {k: v for k, v in section.items() if str(k) != str(key)}
        if key in section and not str(key).startswith("<"):
            return {**section, key: _without(section[key], rest)}
    elif isinstance(data, list) and rest and isinstance(key, int):
        items = cast("list[Any]", data)
        return [_without(item, rest) if i == key else item for i, item in enumerate(items)]
    return _without(data, rest) if rest else data
