"""The spec's section for a language model as judge: address, question, scale and budget."""

from __future__ import annotations

import re
import string
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from kltune.masking import name_secret
from kltune.spec.closed import Closed, FieldProblems
from kltune.spec.duration import seconds

Seconds = Annotated[PositiveFloat, BeforeValidator(seconds)]
"""A duration: ``90``, ``90s``, ``15m``."""


HOW_ASKED: Final = (
    "url", "key_env", "timeout", "retries", "parallel", "budget", "price_in", "price_out",
)  # fmt: skip
"""Fields of a judge that change where and how often it is asked, not what it says."""


class BudgetSpec(Closed):
    """Where the judge stops, over the whole study; answers from the cache cost nothing."""

    calls: PositiveInt | None = None
    """Requests."""

    tokens: PositiveInt | None = None
    """Tokens read and written, as the server counts them."""

    money: PositiveFloat | None = None
    """In the unit of the prices."""


class JudgeSpec(Closed):
    """A language model behind an OpenAI-compatible address that gives each answer a number."""

    judge: str = Field(min_length=1)
    """Name of the model, as the server knows it."""

    url: str
    """Up to the version: ``http://localhost:8000/v1``."""

    key_env: str | None = None
    """Name of the environment variable with the key; the key itself never goes into a file."""

    ask: str | None = None
    """The question, with ``{prompt}``, ``{completion}`` and any column; none: how good the answer is."""

    system: str | None = None
    """System message."""

    scale: tuple[float, float] = (1.0, 10.0)
    """Lowest and highest number that it may give."""

    temperature: float = Field(default=0.0, ge=0, le=2)
    """Sampling temperature of the judge."""

    max_tokens: PositiveInt = 512
    """Longest reply, in tokens."""

    timeout: Seconds = 60.0
    """Longest wait for one reply, in seconds."""

    retries: NonNegativeInt = 5
    """Further attempts when the server is busy or out of reach; a reply without a number is asked for once more."""

    unreadable: float | None = None
    """Score where the replies hold no number; none: no score as proxy, the lowest of the scale as gold."""

    parallel: PositiveInt = 4
    """Requests at once."""

    budget: BudgetSpec = BudgetSpec()

    price_in: PositiveFloat | None = None
    """Price of a million tokens read."""

    price_out: PositiveFloat | None = None
    """Price of a million tokens written."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"must be like http://localhost:8000/v1 (got {url!r})")
        if parts.username or parts.password or parts.query:
            # Not shown: it may be the key.
            raise ValueError(
                "must hold no user, password or query: give the key by key_env (got one; not shown)"
            )
        return url.rstrip("/").removesuffix("/chat/completions")

    @field_validator("key_env")
    @classmethod
    def _is_a_name(cls, name: str | None) -> str | None:
        if name is not None and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name) is None:
            # Not shown: it may be the key.
            raise ValueError(
                "must be the name of an environment variable, not the key itself (got no name; not shown)"
            )
        if name is not None:
            name_secret(name)  # as early as can be: what is started from here hides its value too
        return name

    @field_validator("ask")
    @classmethod
    def _shows_the_answer(cls, ask: str | None) -> str | None:
        if ask is not None and "completion" not in fields_of(ask):
            raise ValueError("must hold {completion}; write braces that are text twice")
        return ask

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        problems: list[tuple[str, str]] = []
        if self.scale[0] >= self.scale[1]:
            problems.append(("scale", f"must go from low to high (got {list(self.scale)})"))
        if self.budget.money is not None and (self.price_in is None or self.price_out is None):
            problems.append(("budget.money", "needs price_in and price_out"))
        if problems:
            raise FieldProblems(*problems)
        return self


class UnaskedJudge(JudgeSpec):
    """A judge in whose place lengths score: for runs that only measure time. No spec file can ask for it."""


def fields_of(template: str) -> tuple[str, ...]:
    """Names in braces in ``template``, once each.

    Raises:
        ValueError: braces that don't pair, or that hold more than a name.
    """
    names = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    wrong = next((name for name in names if not name.isidentifier()), None)
    if wrong is not None:
        raise ValueError(f"{{{wrong}}} is no name of a column; write braces that are text twice")
    return tuple(dict.fromkeys(names))
