"""Types of command-line flags of the benchmarks; argparse puts the flag into their messages."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.strip().isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1 (got {text!r})")
    return int(text)


def counts(text: str) -> list[int]:
    """Several, like 1,2,4."""
    return [count(part) for part in text.split(",")]
