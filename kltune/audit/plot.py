"""An audit in, one picture out: where each penalty's gradient points, and how long it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kltune.audit.result import AuditResult, PenaltyRow
from kltune.audit.statistics import WIDE, Alignment
from kltune.audit.verdict import Kind
from kltune.plot_style import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"full": "#1b5e8c", "local": "#c96a1b"}
_SHORTEST, _LONGEST = 0.05, 20.0
_OFFSET = 0.16


def save_plot(result: AuditResult, path: Path) -> None:
    """Write the picture as PNG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        height = 1.6 + 0.3 * len(result.penalties)
        canvas = Figure(figsize=(9.0, height), layout="constrained", dpi=150)
        FigureCanvasAgg(canvas)
        left, right = canvas.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        for place, row in enumerate(result.penalties):
            for kind, offset in (("full", -_OFFSET), ("local", _OFFSET)):
                _draw(left, right, row, kind, place + offset)
        _frame(left, right, result)
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, format="png", facecolor="white", metadata={"Software": None})


def _draw(left: Axes, right: Axes, row: PenaltyRow, kind: str, height: float) -> None:
    alignment: Alignment = row.full if kind == "full" else row.local
    look: dict[str, Any] = {
        "fmt": "o" if kind == "full" else "D",
        "markersize": 5 if kind == "full" else 4,
        "color": _COLOURS[kind],
        "markerfacecolor": _COLOURS[kind] if kind == "full" else "white",
        "elinewidth": 1,
        "capsize": 2,
    }
    if alignment.cosine is not None and alignment.ratio is not None:
        cosine, ratio = alignment.cosine, alignment.ratio
        left.errorbar(cosine.value, height, xerr=WIDE * cosine.se, **look)
        low = min(WIDE * ratio.se, ratio.value - _SHORTEST / 2) if ratio.se else 0.0
        shown = min(max(ratio.value, _SHORTEST), _LONGEST)
        right.errorbar(shown, height, xerr=[[max(low, 0.0)], [WIDE * ratio.se]], **look)
    elif alignment.ratio_limit is not None:
        limit = min(max(alignment.ratio_limit, _SHORTEST), _LONGEST)
        right.plot(limit, height, marker="<", color=_COLOURS[kind], markersize=5, linestyle="")
        if kind == "full":
            words = "noise, no direction" if row.verdict.kind is Kind.NOISE else "can't be told"
            left.text(0.0, height + _OFFSET, words, va="center", ha="center", color="grey")


def _frame(left: Axes, right: Axes, result: AuditResult) -> None:
    from matplotlib.lines import Line2D

    labels = [row.penalty.value for row in result.penalties]
    left.set_yticks(range(len(labels)), labels)
    for label, row in zip(left.get_yticklabels(), result.penalties, strict=True):
        if row.verdict.kind in (Kind.AWAY, Kind.NOISE, Kind.ELSEWHERE):
            label.set_color("#9a3030" if row.verdict.kind is not Kind.ELSEWHERE else "#7a6a1a")
    left.set_ylim(len(labels) - 0.5, -0.5)
    left.set_xlim(-1.1, 1.1)
    left.set_xlabel("cosine with the reference gradient")
    right.set_xscale("log", base=2)
    right.set_xlim(_SHORTEST * 0.8, _LONGEST)
    ticks = (1 / 16, 1 / 4, 1, 4, 16)
    right.set_xticks(ticks, ["1/16", "1/4", "1", "4", "16"])
    right.set_xlabel("length / length of the reference gradient")
    for axes, at in ((left, (0.0, 1.0)), (right, (1.0,))):
        axes.grid(axis="y", linewidth=0.3, alpha=0.5)
        for x in at:
            axes.axvline(x, color="black", linewidth=0.6, linestyle=":" if x == 0.0 else "-")
    handles = [
        Line2D([], [], color=_COLOURS["full"], marker="o", label="whole sequence's KL (full)"),
        Line2D([], [], color=_COLOURS["local"], marker="D", markerfacecolor="white", label="its token-local part (local)"),
        Line2D([], [], color="grey", marker="<", linestyle="", label="upper limit of what may be noise"),
    ]  # fmt: skip
    figure = left.figure
    bars = (
        "no error bars: enumerated" if result.pair.is_enumerated else "bars: ± two standard errors"
    )
    figure.suptitle(
        f"Expected gradients of KL penalties: {result.pair.policy} against {result.pair.reference}\n"
        f"KL {result.divergences.kl_token.value:.3g} nats/token = "
        f"{result.divergences.kl_seq.value:.3g} nats/sequence; {bars}",
        fontsize=10,
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
