"""kltune: measure the KL setting of an RL run before you pay for it.

In Python: ``kltune.sweep(spec)`` runs or resumes a study, ``kltune.open_study(folder)`` reads one;
``kltune.run_arms(spec, arms=..., seeds=...)`` trains given settings on given seeds, to compare them.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import Final

__version__ = "0.1.0"

# Imported when they are first used: `import kltune` stays light. Their types are in __init__.pyi, since
# an import here, even one for type checkers alone, would make every module that asks for the version
# depend on the whole package.
_PUBLIC: Final = MappingProxyType(
    {
        "Arms": "kltune.api.arms",
        "Study": "kltune.api.study",
        "open_arms": "kltune.api.arms",
        "open_study": "kltune.api.study",
        "run_arms": "kltune.api.arms",
        "sweep": "kltune.api.sweep",
    }
)


def __getattr__(name: str) -> object:
    """Import a public name."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kltune' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
