from __future__ import annotations

import io

from preview_case import forecast_of, hump, opposite, same, scored
from rich.console import Console

from kltune.preview.result import Forecast
from kltune.preview.table import preview_table


def _text(found: Forecast) -> str:
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(preview_table(found))
    return " ".join(out.getvalue().split())


def test_a_proxy_that_points_away_is_called_useless() -> None:
    text = _text(forecast_of(scored(opposite)))
    assert "The proxy is useless here" in text
    assert "none is suggested" in text


def test_a_hump_is_told_with_its_interval_and_what_rl_may_do() -> None:
    text = _text(forecast_of(scored(hump, samples=512)))
    assert "Gold is highest at a KL of" in text
    assert "95 % interval" in text
    assert "RL may reach a higher gold" in text
    assert "upper bound log n" in text
    assert "beta: {log: [" in text


def test_what_was_cut_and_what_would_show_it_is_said() -> None:
    text = _text(forecast_of(scored(same, samples=16)))
    assert "no clear fall is seen" in text
    assert "fewer than nine prompts in ten keep 10 effective samples" in text
    assert "to see up to 2 nats/sequence: about" in text


def test_a_curve_without_any_beta_has_its_words() -> None:
    text = _text(forecast_of(scored(same, samples=8)))
    assert "no beta can be shown" in text


def test_an_end_that_is_not_suggested_leaves_the_other() -> None:
    text = _text(forecast_of(scored(same, samples=64)))
    assert "target_kl: from 0." in text
    assert "beta: up to 1" in text or "beta: up to 0." in text
    assert "log: [" not in text
