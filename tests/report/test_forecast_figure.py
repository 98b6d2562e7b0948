from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from chart_case import accepted
from fake_study import trial, write_study
from preview_case import forecast_of, hump, scored

from kltune.report.forecast_figure import forecast_figures
from kltune.report.rows import read_study


def test_a_thousand_evaluations_don_t_swell_the_page(tmp_path: Path) -> None:
    forecast = forecast_of(scored(hump))
    one = read_study(write_study(tmp_path / "one", [trial(0.1)]))
    many = read_study(write_study(tmp_path / "many", [trial(0.1) for _ in range(30)]))
    few, more = (len(forecast_figures(study, forecast)[0].svg) for study in (one, many))
    assert few < 25_000
    assert more - few < 30 * 9 * 40, "bytes for 270 further dots"


def test_the_captions_name_gold_and_proxy(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.1)]))
    gold, proxy = forecast_figures(study, forecast_of(scored(hump)))
    assert gold.caption.startswith("Gold against KL")
    assert proxy.caption.startswith("Proxy against KL")
    for figure, field in ((gold, "gold"), (proxy, "proxy")):
        assert accepted(figure.chart).layout["yaxis"]["title"]["text"].startswith(field)


def test_every_evaluation_is_a_dot(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.1) for _ in range(20)]))
    forecast = forecast_of(scored(hump, samples=512))
    none = replace(study, trials=())
    reach = 1.6 * max(curve.seen_kl_seq for curve in forecast.curves)
    shown = [c for row in study.trials for c in row.checkpoints if c.kl_seq <= reach]
    assert len(shown) > 128
    before, after = (forecast_figures(one, forecast)[0].svg.count(" h0") for one in (none, study))
    assert after - before == len(shown)
