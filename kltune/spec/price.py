"""What the user pays for a machine and its energy: numbers of the spec in, the money of some hours out."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from kltune.spec.closed import Closed, FieldProblems


class PriceSpec(Closed):
    """Prices for the report. Nothing is assumed: what is not given is not reckoned."""

    per_hour: Annotated[float, Field(gt=0, le=1e5)] | None = None
    """Price of the whole machine for an hour, in ``currency``."""

    currency: str | None = None
    """What prices are in, as it is to be printed: EUR, USD, credits."""

    watts: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Power drawn by the whole machine while it trains, in watts."""

    per_kwh: Annotated[float, Field(gt=0, le=100)] | None = None
    """Price of a kilowatt-hour, in ``currency``; needs ``watts``."""

    @field_validator("currency")
    @classmethod
    def _is_a_word(cls, currency: str | None) -> str | None:
        if currency is not None and re.fullmatch(r"[^\W\d_]{1,12}|[$€£¥₹]", currency) is None:
            raise ValueError(
                f"must be a name of up to 12 letters or a currency sign (got {currency!r})"
            )
        return currency

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        problems: list[tuple[str, str]] = []
        if self.per_hour is None and self.watts is None:
            problems.append(("", "needs per_hour, watts or both"))
        if self.per_kwh is not None and self.watts is None:
            problems.append(("per_kwh", "has no effect without watts: give them, or remove it"))
        has_price = self.per_hour is not None or self.per_kwh is not None
        if has_price and self.currency is None:
            problems.append(("currency", "is missing: say what the price is in, like EUR"))
        if self.currency is not None and not has_price:
            problems.append(("currency", "has no effect without per_hour or per_kwh: remove it"))
        if problems:
            raise FieldProblems(*problems)
        return self

    def energy_kwh(self, seconds: float) -> float | None:
        """Seconds x watts, in kilowatt-hours; none where no watts are given."""
        return None if self.watts is None else seconds * self.watts / 3.6e6

    def money(self, seconds: float) -> float | None:
        """Hours x per_hour + kilowatt-hours x per_kwh, in ``currency``; none where no price is given."""
        if self.per_hour is None and self.per_kwh is None:
            return None
        energy = self.energy_kwh(seconds) or 0.0
        return seconds / 3600 * (self.per_hour or 0.0) + energy * (self.per_kwh or 0.0)
