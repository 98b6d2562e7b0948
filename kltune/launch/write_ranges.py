"""Suggested ranges in, the user's spec with them out: comments and layout stay, a backup is kept.

Only numbers of dimensions that the spec already searches are changed.
"""

from __future__ import annotations

import io
import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq

from kltune.errors import RunError, SpecError
from kltune.preview.result import Ends
from kltune.spec.load import LoadedSpec, load_spec


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A spec's file as it was when the command began."""

    path: Path
    text: bytes

    def write(self, beta: Ends | None, target_kl: Ends | None) -> list[str]:
        """Put the ranges in; an end that is None, or the spec's own, stays. The lines say what was done.

        Raises:
            RunError: the file changed meanwhile, can't be written, or would no longer be a sound spec.
        """
        yaml = _round_trip()
        data: Any = yaml.load(self.text.decode("utf-8"))
        lines: list[str] = []
        changed = False
        for name, found in (("beta", beta), ("target_kl", target_kl)):
            line, is_changed = _set_range(data["search"], name, found)
            lines.append(f"search.{name}: {line}")
            changed |= is_changed
        if not changed:
            return [*lines, f"{self.path} is left as it was"]
        out = io.StringIO()
        yaml.dump(data, out)
        backup = self._replace(out.getvalue().encode("utf-8"))
        return [*lines, f"wrote {self.path}; the old one is {backup}"]

    def _replace(self, text: bytes) -> Path:
        scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp.yaml")
        backup = self.path.with_name(self.path.name + ".bak")
        try:
            if self.path.read_bytes() != self.text:
                raise RunError(
                    f"{self.path} was changed while the forecast ran, so nothing was written into it; "
                    "the suggested ranges are shown above"
                )
            scratch.write_bytes(text)
            _check_sound(scratch)
            backup.write_bytes(self.text)
            os.chmod(scratch, self.path.stat().st_mode)  # noqa: PTH101  (mode of the old file)
            scratch.replace(self.path)
        except OSError as error:
            raise RunError(f"--write: {self.path} can't be written: {error.strerror}") from error
        finally:
            scratch.unlink(missing_ok=True)
        return backup


def open_spec_file(loaded: LoadedSpec) -> SpecFile:
    """Take note of the spec's file, before anything is computed.

    Raises:
        SpecError: it can't be written to.
    """
    path = loaded.path.resolve()
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        raise SpecError(f"--write: {loaded.path} can't be written to")
    return SpecFile(path, path.read_bytes())


def _check_sound(path: Path) -> None:
    try:
        load_spec(path)
    except SpecError as error:
        raise RunError(
            f"--write: with these ranges the spec would not be sound, so it is left as it was: {error}"
        ) from error


def _round_trip() -> YAML:
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096
    return yaml


def _set_range(search: MutableMapping[str, Any], name: str, found: Ends | None) -> tuple[str, bool]:
    """What happened, and whether anything changed."""
    if found is None:
        return "no range is suggested in the spec's unit", False
    dimension = search.get(name)
    if dimension is None:
        return "is not searched by this spec, so nothing is written", False
    if not isinstance(dimension, MutableMapping) or not ({"log", "uniform"} & dimension.keys()):
        return "is a constant or a choice in this spec, so nothing is written", False
    kind = "log" if "log" in dimension else "uniform"
    own = dimension[kind]
    before = [float(bound) for bound in own]
    after = [old if new is None else new for old, new in zip(before, found, strict=True)]
    told = f"{kind}: [{before[0]:g}, {before[1]:g}]"
    if after == before:
        return f"{told} stays", False
    # An end that stays keeps the way it was written; a new row, since the old one may be another's too (anchors).
    row = CommentedSeq(
        text if old == new else new for text, old, new in zip(own, before, after, strict=True)
    )
    row.fa.set_flow_style()
    dimension[kind] = row
    return f"{told} is now [{after[0]:g}, {after[1]:g}]", True
