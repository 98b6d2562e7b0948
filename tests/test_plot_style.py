from __future__ import annotations

import matplotlib as mpl

from kltune.plot_style import STYLE


def test_matplotlib_knows_every_setting_and_forgets_it_afterwards() -> None:
    before = {name: mpl.rcParams[name] for name in STYLE}
    with mpl.rc_context(STYLE):
        assert mpl.rcParams["font.size"] == 9
        assert not mpl.rcParams["axes.spines.top"]
    assert {name: mpl.rcParams[name] for name in STYLE} == before
