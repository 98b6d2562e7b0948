"""Prices: refused where they say nothing, and reckoned by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import minimal, problems_of

from kltune.spec.price import PriceSpec


def told(folder: Path, **price: Any) -> list[str]:
    return problems_of(folder, {**minimal(), "budget": {"trials": 4, "price": price}})


@pytest.mark.parametrize(
    "price",
    [
        {"per_hour": 2.5, "currency": "EUR"},
        {"watts": 300},
        {"watts": 300, "per_kwh": 0.3, "currency": "€"},
        {"per_hour": 2.5, "watts": 300, "per_kwh": 0.3, "currency": "kr"},
    ],
)
def test_an_hour_and_watts_may_be_given_apart_or_together(
    tmp_path: Path, price: dict[str, Any]
) -> None:
    assert told(tmp_path, **price) == []


@pytest.mark.parametrize(
    ("price", "line"),
    [
        ({}, "budget.price: needs per_hour, watts or both"),
        ({"watts": 300, "per_kwh": 0.3}, "budget.price.currency: is missing: say what"),
        ({"per_hour": 2.5}, "budget.price.currency: is missing: say what the price is in"),
        ({"watts": 300, "currency": "EUR"}, "budget.price.currency: has no effect without"),
        (
            {"per_hour": 1, "per_kwh": 0.3, "currency": "EUR"},
            "budget.price.per_kwh: has no effect without watts",
        ),
        ({"per_hour": -1, "currency": "EUR"}, "budget.price.per_hour: Input should be greater"),
        ({"per_hour": 0, "currency": "EUR"}, "budget.price.per_hour: Input should be greater"),
        ({"per_hour": 1e6, "currency": "EUR"}, "budget.price.per_hour: Input should be less"),
        ({"watts": -300}, "budget.price.watts: Input should be greater than 0 (got -300)"),
        ({"watts": 2e6}, "budget.price.watts: Input should be less than or equal to 1000000"),
        ({"watts": True}, "budget.price.watts: Input should not be a truth value"),
        (
            {"watts": 3, "per_kwh": 300, "currency": "ct"},
            "budget.price.per_kwh: Input should be less than or equal to 100 (got 300)",
        ),
        ({"per_hour": 1, "currency": "<b>"}, "budget.price.currency: must be a name of up to 12"),
        ({"per_hour": 1, "currency": ""}, "budget.price.currency: must be a name of up to 12"),
    ],
)
def test_a_price_that_says_nothing_or_nonsense_is_refused_by_field(
    tmp_path: Path, price: dict[str, Any], line: str
) -> None:
    (found,) = told(tmp_path, **price)
    assert found.startswith(line)


def test_money_is_hours_and_kilowatt_hours() -> None:
    price = PriceSpec(per_hour=2.5, currency="EUR", watts=300, per_kwh=0.3)
    assert price.energy_kwh(7200) == pytest.approx(0.6)
    assert price.money(7200) == pytest.approx(2 * 2.5 + 0.6 * 0.3)


def test_what_is_not_given_is_not_reckoned() -> None:
    assert PriceSpec(watts=300).money(3600) is None
    hourly = PriceSpec(per_hour=2.5, currency="EUR")
    assert hourly.energy_kwh(3600) is None
    assert hourly.money(3600) == 2.5
