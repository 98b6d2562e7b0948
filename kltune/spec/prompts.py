"""Where a user's prompts come from, how their columns are called, and how they are divided."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    Tag,
    field_validator,
    model_validator,
)

from kltune.spec.closed import Closed, FieldProblems

Format = Literal["jsonl", "json", "csv", "parquet", "text", "datasets"]
"""How a prompts file is written."""

ENDINGS: Final = "a .jsonl, .json, .csv, .tsv, .parquet or .txt file (one prompt a line), or a folder that datasets saved"
"""What a prompts file may be, in words."""

_FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        ".jsonl": "jsonl",
        ".json": "json",
        ".csv": "csv",
        ".tsv": "csv",
        ".parquet": "parquet",
        ".txt": "text",
    }
)
_SAVED: Final = ("dataset_info.json", "dataset_dict.json", "state.json")

SPLIT_NAMES: Final = ("train", "select", "test")
"""The parts of a task's prompts: to train on, to judge trials by, to confirm winners by."""

RESERVED: Final = ("prompts", "completions")
"""Names that a scorer's own arguments have."""


def format_of(path: Path) -> Format | None:
    """How a file is written, by its ending; a folder by what is in it; None: nobody can tell."""
    if path.suffix.casefold() in _FORMATS:
        return _FORMATS[path.suffix.casefold()]
    if any((path / name).is_file() for name in _SAVED):
        return "datasets"
    is_parquet = path.is_dir() and any(path.glob("*.parquet"))
    return "parquet" if is_parquet else None


class SplitsSpec(Closed):
    """How prompts are divided where the file does not say: shares of the prompts."""

    train: PositiveFloat = 0.5
    select: PositiveFloat = 0.25
    test: PositiveFloat = 0.25
    seed: int = 0
    """Also of the choice that ``task.prompts.limit`` makes."""

    near_duplicates: Literal["warn", "drop", "refuse"] = "warn"
    """Prompts of two splits that share 80 % of their three-word runs: told, dropped from the split that comes
    first (train, select, test), or refused. Equal ones are dropped by ``drop``, else always refused."""


class SplitNames(Closed):
    """Which of the source's own splits serve as train, select and test.

    Parts that name the same one share it by ``task.splits``.
    """

    column: str | None = None
    """A file's column that names the split of a row; none: ``split``. A dataset's splits have names of their own."""

    train: str
    select: str
    test: str

    def sources(self) -> dict[str, list[str]]:
        """The source's splits, and the parts that each serves as."""
        found: dict[str, list[str]] = {}
        for part in SPLIT_NAMES:
            found.setdefault(getattr(self, part), []).append(part)
        return found


def _split_kind(value: Any) -> str:
    return "<column>" if isinstance(value, str) or value is None else "<names>"


Split = Annotated[
    Annotated[str | None, Tag("<column>")] | Annotated[SplitNames, Tag("<names>")],
    Discriminator(_split_kind),
]


class PromptsSpec(Closed):
    """A file, a folder or a data set of prompts."""

    path: str | None = Field(default=None, min_length=1)
    """A file or a folder; relative to the spec."""

    dataset: str | None = Field(default=None, min_length=1)
    """A data set of the hub, by its id; needs the extra kltune[datasets]. No code of the hub is run."""

    format: Format | None = None
    """How the file is written; none: by its ending (.jsonl, .json, .csv, .tsv, .parquet, .txt; a folder that
    `datasets` saved). json: an array of objects. CSV: every value is text."""

    config: str | None = None
    """Which of the data set's configurations."""

    revision: str | None = None
    """Branch, tag or commit of the data set; a commit keeps it the same for ever."""

    prompt: str = Field(default="prompt", min_length=1)
    """The column with the prompt: text, or a list of messages ``{role, content}`` up to the question."""

    columns: dict[str, str] = Field(default_factory=dict[str, str])
    """Other names for columns: what a scorer's argument is called, and the source's column. The rest keep theirs."""

    split: Split = None
    """The column that says train, select or test; or the names of the source's own splits. None: column ``split``
    where there is one, else by ``task.splits``."""

    limit: PositiveInt | None = None
    """At most so many rows, chosen by ``task.splits.seed``."""

    words: PositiveInt | None = None
    """Only so many words from the start of each prompt, to be continued; none: all of it. Not for messages."""

    @field_validator("columns")
    @classmethod
    def _are_arguments(cls, columns: dict[str, str]) -> dict[str, str]:
        problems = [(name, problem) for name in columns if (problem := _name_problem(name))]
        if problems:
            raise FieldProblems(*problems)
        return columns

    @model_validator(mode="after")
    def _is_one_source(self) -> Self:
        problems: list[tuple[str, str]] = []
        if (self.path is None) == (self.dataset is None):
            problems.append(("path", "give path or dataset, one of them"))
        if self.dataset is not None and self.format not in (None, "datasets"):
            problems.append(("format", f"a dataset has its own (got {self.format})"))
        if self.dataset is None:
            problems += [
                (name, "only with dataset")
                for name in ("config", "revision")
                if getattr(self, name) is not None
            ]
        if self.dataset is not None and isinstance(self.split, SplitNames) and self.split.column:
            problems.append(("split.column", "only with a file; a dataset's splits have names"))
        if problems:
            raise FieldProblems(*problems)
        return self

    @property
    def source(self) -> str:
        """The file or data set as the spec names it."""
        return self.path or self.dataset or ""

    @property
    def full_source(self) -> str:
        """The same with configuration and revision: ``owner/name:config@revision``."""
        config = "" if self.config is None else f":{self.config}"
        return f"{self.source}{config}{'' if self.revision is None else f'@{self.revision}'}"


def _name_problem(name: str) -> str | None:
    if not name.isidentifier():
        return "must be a name that a function's argument can have"
    if name in RESERVED:
        return "has a name that scorers use"
    return "has a place of its own" if name in ("prompt", "split") else None


def _prompts_kind(value: Any) -> str:
    return "<file>" if isinstance(value, str) else "<table>"


# A tag names the branch that is meant, so that mistakes in it are reported once, not per branch.
Prompts = Annotated[
    Annotated[str, Tag("<file>")] | Annotated[PromptsSpec, Tag("<table>")],
    Discriminator(_prompts_kind),
]
