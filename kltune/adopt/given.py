"""A configuration's text in, its keys and values out, flat; what can't be read as a plain value is named."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from kltune.adopt.script import flags_of, overrides_of
from kltune.adopt.source_code import config_call
from kltune.adopt.whose import ENTRY, check_is_of
from kltune.errors import SpecError
from kltune.export.releases import FRAMEWORKS
from kltune.spec.yaml_text import parse_yaml

_MOST: Final = 1_000_000
"""Bytes; a configuration is smaller."""

_SKIPPED: Final = ("hydra", "_target_")
"""Sections and keys that say how Hydra builds things, nothing of the setting."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a file says."""

    name: str
    """The file's own name."""
    values: Mapping[str, Any]
    """By the framework's key: dotted, or a flag with its dashes."""
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key and the expression that is no plain value."""
    notes: tuple[str, ...] = ()
    """What of the file was not followed."""
    builder: str = ""
    """TRL's class, where the file names it."""
    path: str = ""
    """As it was given."""

    @property
    def where(self) -> str:
        """For messages."""
        return self.path or self.name


def read_given(framework: str, path: Path) -> Given:
    """Read a file by its ending and content: Python (never run), JSON, YAML, or a shell script.

    Raises:
        SpecError: it can't be read, or holds nothing of the framework.
    """
    text = _text(path)
    suffix = path.suffix.lower()
    if suffix == ".py":
        found = _python(framework, path, text)
    elif suffix in (".yaml", ".yml", ".json"):
        found = _mapping(framework, path, text)
    else:
        found = _shell(framework, path, text)
    seen = {other: _seen_by(other, path, text) for other in FRAMEWORKS if other != framework}
    check_is_of(framework, str(path), found, text, seen)
    return found


def _seen_by(framework: str, path: Path, text: str) -> tuple[str, ...]:
    """Keys that the file would have as one of this framework's; none of a file that it can't be."""
    suffix = path.suffix.lower()
    if suffix == ".py":
        return ()
    read = _mapping if suffix in (".yaml", ".yml", ".json") else _shell
    try:
        found = read(framework, path, text)
    except SpecError:
        return ()
    return (*found.values, *found.unreadable)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST:
            raise SpecError(f"{path}: is above {_MOST:,} bytes, so it is no configuration")
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise SpecError(f"{path}: can't be read: {error.strerror}") from None
    if not text.strip():
        raise SpecError(f"{path}: is empty")
    return text


def _python(framework: str, path: Path, text: str) -> Given:
    if framework != "trl":
        raise SpecError(
            f"{path}: a Python file is read for --from trl only; give {framework}'s YAML file or command line"
        )
    call = config_call(str(path), text)
    return Given(path.name, call.values, call.unreadable, call.notes, call.builder, str(path))


def _shell(framework: str, path: Path, text: str) -> Given:
    if framework in ("verl", "nemo-rl"):
        found = overrides_of(text, ENTRY[framework])
    else:
        found = flags_of(text, ENTRY[framework])
        if framework == "trl":  # --max-steps and --max_steps are one
            found = found.renamed(lambda flag: flag.lstrip("-").replace("-", "_"))
    return Given(path.name, found.values, found.unreadable, found.notes, path=str(path))


def _mapping(framework: str, path: Path, text: str) -> Given:
    raw = _parsed(path, text)
    if not isinstance(raw, dict):
        what = "nothing but comments" if raw is None else f"a {type(raw).__name__}"
        raise SpecError(f"{path}: must be `key: value` lines (got {what})")
    notes: list[str] = []
    values: dict[str, Any] = {}
    _flatten(cast("dict[Any, Any]", raw), "", values)
    followed = {key: value for key, value in values.items() if key.split(".")[0] == "defaults"}
    for key, value in followed.items():
        del values[key]
        if value == ["ppo_trainer", "_self_"]:  # verl's own defaults, which are on record
            continue
        notes.append(
            f"defaults: {_short(value)} is not followed: what it says is taken to be the framework's own default; "
            "give the composed file to be sure"
        )
    if framework == "openrlhf":
        values = {
            key if key.startswith("--") else f"--{key}": value for key, value in values.items()
        }
    return Given(path.name, values, {}, tuple(notes), path=str(path))


def _parsed(path: Path, text: str) -> Any:
    try:
        if path.suffix.lower() == ".json":
            return json.loads(text, object_pairs_hook=_once)
        return parse_yaml(text)
    except json.JSONDecodeError as error:
        raise SpecError(
            f"{path}: not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from None
    except _TwiceError as error:
        raise SpecError(f"{path}: {error} stands there a second time; leave one") from None
    except DuplicateKeyError as error:
        key = re.search(r'duplicate key "(.*?)"', str(error.problem))
        line = 0 if error.problem_mark is None else error.problem_mark.line + 1
        raise SpecError(
            f"{path}: line {line}: {'a key' if key is None else key[1]} stands there a second time; leave one"
        ) from None
    except MarkedYAMLError as error:
        line = 0 if error.problem_mark is None else error.problem_mark.line + 1
        raise SpecError(f"{path}: line {line}: not YAML: {error.problem}") from None
    except YAMLError as error:
        raise SpecError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise SpecError(f"{path}: can't be read: too deeply nested") from None
    except ValueError as error:
        raise SpecError(f"{path}: {error}") from None


class _TwiceError(ValueError):
    """A name that a section of JSON has twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A section of JSON, which would let the last of two values stand in silence."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceError(name)
        found[name] = value
    return found


def _flatten(section: dict[Any, Any], above: str, values: dict[str, Any]) -> None:
    """Nested and dotted keys become the same."""
    for key, value in section.items():
        name = f"{above}.{key}" if above else str(key)
        if name.split(".")[0] in _SKIPPED or str(key) in _SKIPPED:
            continue
        if isinstance(value, dict) and value:
            _flatten(cast("dict[Any, Any]", value), name, values)
        else:
            values[name] = value


def printable(text: str) -> str:
    """Without characters that do something to a terminal or end a comment."""
    return "".join(c if c.isprintable() else " " for c in text)


def _short(value: object) -> str:
    text = re.sub(r"\s+", " ", str(value))
    return text if len(text) <= 80 else text[:77] + "..."
