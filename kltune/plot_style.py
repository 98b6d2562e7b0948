"""How every PNG that kltune draws looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

STYLE: Final[dict[RcKeyType, Any]] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "legend.frameon": False,
}
"""Settings for ``matplotlib.rc_context``, so that no global one is touched."""
