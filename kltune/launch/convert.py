"""``kltune convert``: one trainer's configuration in, the same setting in another's keys and units out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kltune.adopt.convert import Asked, as_plain, converted, read_config
from kltune.errors import ExitCode, SpecError
from kltune.export.releases import FRAMEWORKS
from kltune.export.target import Sizes
from kltune.launch.put import put, refused, sealed
from kltune.launch.saying import say
from kltune.launch.stdout import reserved_stdout
from kltune.metrics.jsonl import encode

TARGETS: Final = (*FRAMEWORKS, "json")


@dataclass(frozen=True, slots=True)
class ConvertRequest:
    """The flags of ``kltune convert``."""

    config: Path
    framework: str
    """That the file is for."""
    to: str
    from_version: str | None = None
    """None: the newest on record that has the file's keys."""
    to_version: str | None = None
    """None: the newest on record."""
    sigma: float | None = None
    """What advantages are divided by, raw reward."""
    sizes: Sizes = field(default_factory=Sizes)
    out: Path | None = None
    """None: stdout."""
    force: bool = False
    """Replace a file that is none of kltune's."""

    def check(self) -> None:
        """Refuse what can't be written, before anything is read.

        Raises:
            SpecError: all of it in one message.
        """
        problems: list[str] = []
        if self.framework not in FRAMEWORKS:
            problems.append(
                f"--from: must be one of {', '.join(FRAMEWORKS)} (got {self.framework!r})"
            )
        if self.to not in TARGETS:
            problems.append(f"--to: must be one of {', '.join(TARGETS)} (got {self.to!r})")
        if self.to == "json" and self.to_version is not None:
            problems.append("--to-version: has no meaning with --to json")
        if self.sigma is not None and not (math.isfinite(self.sigma) and self.sigma > 0):
            problems.append(f"--sigma: must be a number above 0 (got {self.sigma:g})")
        if self.out is not None:
            problems += self._refused_out(self.out)
        elif self.force:
            problems.append("--force: only with --out FILE")
        if problems:
            raise SpecError("; ".join(problems))

    def _refused_out(self, out: Path) -> list[str]:
        try:
            is_own = out.samefile(self.config)
        except OSError:
            is_own = False
        if is_own:
            return [f"--out: {out} is CONFIG itself, which would be lost; give another file"]
        return refused(out, force=self.force)


def run_convert(request: ConvertRequest) -> ExitCode:
    """Write the other trainer's configuration, with every doubt on stderr too.

    Raises:
        SpecError: flags, a file that can't be read, or a setting that can't be carried over, with the reason.
        RunError: the file can't be written.
    """
    request.check()
    found = read_config(request.framework, request.config, request.from_version)
    asked = Asked(request.to, request.to_version, request.sigma, request.sizes)
    if request.to == "json":
        facts = as_plain(found, asked)
        text, warnings = encode(facts) + "\n", tuple(facts["warnings"])
    else:
        result = converted(found, asked)
        text, warnings = result.text, result.warnings
    for warning in warnings:
        say(f"warning: {warning}")
    if request.out is None:
        with reserved_stdout(is_reserved=True) as stream:
            stream.write(sealed(text))
            stream.flush()
    else:
        say(f"{put(request.out, text, force=request.force)} {request.out}")
    return ExitCode.DONE
