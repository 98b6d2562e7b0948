"""A reward's section and what it reads in, a digest out that tells whether it still judges the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from kltune.spec.closed import Closed
from kltune.spec.rewards import as_judged


def digest(spec: Closed, *files: Path, leave_out: Sequence[str] = ()) -> str:
    """SHA-256 of the section, less what changes no score, and of the files' bytes."""
    found = hashlib.sha256()
    section = as_judged(spec.model_dump(mode="json", exclude=set(leave_out)))
    found.update(json.dumps(section, sort_keys=True).encode())
    for path in files:
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()
