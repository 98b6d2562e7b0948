"""A folder that need not exist yet in, whether files can be made there out; nothing is made to find out."""

from __future__ import annotations

import os
from pathlib import Path


def takes_files(folder: Path) -> bool:
    """Whether the folder, or the nearest one above it that exists, lets this process make files in it."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
