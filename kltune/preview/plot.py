"""A forecast in, one picture out: proxy and gold against the KL that they cost, without training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kltune.plot_style import STYLE
from kltune.preview.result import Curve, Forecast, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"tilt": "#1b5e8c", "best-of-n": "#c96a1b"}
_LABELS = {"tilt": "best policy at each beta", "best-of-n": "best of n (KL: upper bound)"}


def save_plot(forecast: Forecast, path: Path) -> None:
    """Write the picture as PNG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        canvas = Figure(figsize=(9.0, 3.6), layout="constrained", dpi=150)
        FigureCanvasAgg(canvas)
        left, right = canvas.subplots(1, 2)
        for curve in forecast.curves:
            _draw(left, curve, "gold")
            _draw(right, curve, "proxy")
        _mark(left, forecast)
        for axes, name in ((left, "gold"), (right, "proxy")):
            axes.set_xlabel("KL(policy ‖ reference), nats per sequence")
            axes.set_ylabel(f"{name}, mean over prompts (band: 95 %)")
            axes.set_xlim(left=0)
        right.legend(loc="lower right")
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, format="png", facecolor="white", metadata={"Software": None})


def _draw(axes: Axes, curve: Curve, what: str) -> None:
    colour = _COLOURS[curve.kind]
    kl = [point.kl_seq for point in curve.points]
    values = [getattr(point, what) for point in curve.points]
    low, high = [v.low for v in values], [v.high for v in values]
    axes.fill_between(kl, low, high, color=colour, alpha=0.15, linewidth=0)
    look: dict[str, Any] = {"color": colour, "linewidth": 1.3, "markersize": 3}
    style = "-o" if curve.kind == "tilt" else "--s"
    axes.plot(kl, [v.value for v in values], style, label=_LABELS[curve.kind], **look)


def _mark(axes: Axes, forecast: Forecast) -> None:
    """Where gold peaks, and from where on its fall is clear."""
    reading = forecast.reading
    if reading.verdict is Verdict.TURNS:
        peak = reading.peak_kl_seq
        low = peak.value if peak.low is None else peak.low
        high = reading.seen_kl_seq if peak.high is None else peak.high
        axes.axvspan(low, high, color="grey", alpha=0.15, linewidth=0)
        axes.axvline(peak.value, color="grey", linewidth=0.8)
        axes.text(
            peak.value,
            1.0,
            " gold peaks",
            transform=axes.get_xaxis_transform(),
            va="bottom",
            ha="center",
            color="grey",
        )
    if reading.parted_kl_seq is not None:
        axes.axvline(reading.parted_kl_seq, color="#a33", linewidth=0.8, linestyle=":")
        axes.text(
            reading.parted_kl_seq,
            0.02,
            " clear fall",
            transform=axes.get_xaxis_transform(),
            color="#a33",
        )
