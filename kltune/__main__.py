"""``python -m kltune``: the same as the command ``kltune``."""

from __future__ import annotations

from kltune.cli import main

if __name__ == "__main__":
    main()
