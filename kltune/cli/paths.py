"""A command's arguments in; out: the command, or a refusal where an address was given in the place of a path.

``--study postgresql://me:word@host/db`` would make folders by that name, with the password in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand

from kltune.masking import redact

_ADDRESS: Final = re.compile(r"[A-Za-z][\w+.-]+:/")
"""One slash: a path leaves no more of two. A single letter is a drive."""


class PathsAreNoAddresses(TyperCommand):
    """A command none of whose paths is an address."""

    def invoke(self, ctx: Any) -> Any:
        """Run it.

        Raises:
            typer.BadParameter: a path is an address.
        """
        params: list[Any] = [*self.params]
        for param in params:
            value = ctx.params.get(param.name)
            for path in value if isinstance(value, list | tuple) else (value,):
                if isinstance(path, Path) and _ADDRESS.match(str(path)):
                    raise typer.BadParameter(
                        f"must be a path, not an address (got {redact(str(path))!r})",
                        ctx=ctx,
                        param=param,
                    )
        return super().invoke(ctx)


def refuse_addresses(apps: Iterable[typer.Typer]) -> None:
    """Have every command of these apps refuse them."""
    for app in apps:
        for command in app.registered_commands:
            command.cls = PathsAreNoAddresses
