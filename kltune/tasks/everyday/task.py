"""The everyday task: prompts split by topic, its gold, and the proxy that is learned from it.

Torch-free. The task ships no weights: its proxy is learned from the gold's comparisons of the
base model's own answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kltune.spec.task import LearnedProxySpec, SplitsSpec
from kltune.tasks.everyday.gold import everyday_gold, freshness, require_vader
from kltune.tasks.prompts import load_prompts
from kltune.tasks.protocol import Scorer, Splits
from kltune.tasks.scorers import FunctionScorer, function_scorer

NAME: Final = "everyday"
PROMPTS: Final = Path(__file__).parent / "prompts.jsonl"
DEFAULT_PROXY: Final = LearnedProxySpec(comparisons=48, layers=4, steps=10, learning_rate=1e-4)
"""Sized for two CPU cores and a 135 M model; a GPU study should ask for far more comparisons."""

GOLDS: Final[Mapping[str, Scorer]] = MappingProxyType(
    {"freshness": function_scorer("everyday-freshness", freshness)}
)
"""Further judgements that a spec may name."""


def splits() -> Splits:
    """Read the prompts; select and test hold topics that train lacks."""
    return load_prompts(PROMPTS, SplitsSpec())


def gold() -> FunctionScorer:
    """Give the gold scorer.

    Raises:
        EnvironmentMissingError: vaderSentiment is not installed.
    """
    require_vader()
    return function_scorer("everyday-gold", everyday_gold)
