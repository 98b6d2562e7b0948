"""Rewards that are no function: a classifier, a verifier, a judge, a file of scores, a win rate.

``kltune.rewards.make.make_scorer`` turns each into a scorer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import Discriminator, Field, NonNegativeInt, PositiveInt, Tag, model_validator

from kltune.spec.closed import Closed, FieldProblems
from kltune.spec.judge import HOW_ASKED, JudgeSpec, fields_of
from kltune.spec.verifiers import VERIFIERS, CodeVerifierSpec, JsonVerifierSpec, MathVerifierSpec


class RewardModelSpec(Closed):
    """A sequence classifier of Transformers. It reads text, so its vocabulary may be another than the policy's."""

    model: str = Field(min_length=1)
    """A folder or a hub id."""

    label: NonNegativeInt | str | None = None
    """Which output is the score, by number or by the model's own name for it; none: the only one there is."""

    score: Literal["logit", "probability"] = "logit"
    """The output itself, or its softmax (one output: its sigmoid)."""

    template: Literal["auto", "always", "never"] = "auto"
    """Whether prompt and answer go through the classifier's own chat template; auto: if it has one."""

    sees: Literal["both", "completion"] = "both"
    """What it reads; completion: without the prompt."""

    join: str = ""
    """Put between prompt and completion where no template is used."""

    max_tokens: PositiveInt | None = None
    """Longer texts are cut to this many tokens; none: the classifier's own limit."""

    truncate: Literal["left", "right"] = "left"
    """The side that is cut off: left loses the prompt's beginning, right the answer's end."""

    batch: PositiveInt = 16
    """Texts at once."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of its weights."""

    device: str | None = None
    """cpu, cuda or cuda:N; none: where the policy is."""

    @model_validator(mode="after")
    def _template_needs_a_prompt(self) -> Self:
        if self.sees == "completion" and self.template == "always":
            raise FieldProblems(
                ("template", "always needs the prompt: set sees: both, or template: never")
            )
        return self


class RecordedSpec(Closed):
    """Scores from a file, by prompt and completion: people's, or of an earlier run."""

    recorded: str
    """A .jsonl or .csv file."""

    prompt: str = "prompt"
    """Its column with the prompt's text."""

    completion: str = "completion"
    """Its column with the completion; both must match to the letter, spaces at the ends aside."""

    score: str = "score"
    """Its column with the score; several rows of one pair count by their mean."""

    missing: float | None = None
    """Score of a completion that the file lacks; none: it can't be scored (gold needs a number here)."""


def _by_kind(value: Any) -> str:
    is_judge = isinstance(value, JudgeSpec) or (isinstance(value, dict) and "judge" in value)
    return "<judge>" if is_judge else "<model>"


class WinRateBySpec(Closed):
    """Which of two answers wins, and against whose."""

    reference: str
    """A .jsonl or .csv file with one answer of the reference per prompt."""

    prompt: str = "prompt"
    """Its column with the prompt's text."""

    completion: str = "completion"
    """Its column with the reference's answer."""

    by: Annotated[
        Annotated[JudgeSpec, Tag("<judge>")] | Annotated[RewardModelSpec, Tag("<model>")],
        Discriminator(_by_kind),
    ]
    """Who decides: a judge (asked twice, with the answers swapped) or a reward model (the higher score)."""


class WinRateSpec(Closed):
    """1 where the answer beats the reference's recorded one, 0 where it loses, 0.5 for a tie."""

    win_rate: WinRateBySpec


REWARD_KEYS: Final = ("model", "verifier", "judge", "recorded", "win_rate")
"""Each reward is told by the key that only it has."""

_CLASSES: Final[tuple[tuple[type[Closed], str], ...]] = (
    (RewardModelSpec, "<model>"),
    (MathVerifierSpec, "<math>"),
    (JsonVerifierSpec, "<json>"),
    (CodeVerifierSpec, "<code>"),
    (JudgeSpec, "<judge>"),
    (RecordedSpec, "<recorded>"),
    (WinRateSpec, "<win_rate>"),
)


def reward_kind(value: Any) -> str | None:
    """Tag of the reward that ``value`` (a section, or a spec) means; none where it is no such reward."""
    if not isinstance(value, dict):
        return next((tag for kind, tag in _CLASSES if isinstance(value, kind)), None)
    if "verifier" in value:
        return f"<{value['verifier']}>" if value["verifier"] in VERIFIERS else "<math>"
    # A judge's model is called judge, so `model` alone means a classifier.
    return next(
        (f"<{key}>" for key in ("judge", "recorded", "win_rate", "model") if key in value), None
    )


RewardSpec = Annotated[
    Annotated[RewardModelSpec, Tag("<model>")]
    | Annotated[MathVerifierSpec, Tag("<math>")]
    | Annotated[JsonVerifierSpec, Tag("<json>")]
    | Annotated[CodeVerifierSpec, Tag("<code>")]
    | Annotated[JudgeSpec, Tag("<judge>")]
    | Annotated[RecordedSpec, Tag("<recorded>")]
    | Annotated[WinRateSpec, Tag("<win_rate>")],
    Discriminator(reward_kind),
]
"""Any of them."""


def judge_of(spec: object) -> JudgeSpec | None:
    """The judge that a reward asks, itself or for a win rate; none where it asks none."""
    if isinstance(spec, WinRateSpec):
        return judge_of(spec.win_rate.by)
    return spec if isinstance(spec, JudgeSpec) else None


def judge_calls(spec: object) -> int:
    """Requests that a reward makes for one completion which its cache lacks."""
    if judge_of(spec) is None:
        return 0
    return 2 if isinstance(spec, WinRateSpec) else 1


def as_judged(section: Any) -> Any:
    """A section as plain JSON, at any depth, without what changes how a reward is run but no score."""
    if isinstance(section, list | tuple):
        return [as_judged(item) for item in cast("Sequence[Any]", section)]
    if not isinstance(section, dict):
        return section
    given = cast("dict[str, Any]", section)
    left_out: tuple[str, ...] = ()
    if "judge" in given and "url" in given:
        left_out = HOW_ASKED
    elif "truncate" in given and "sees" in given:
        left_out = ("batch", "device")
    elif given.get("verifier") == "code":
        left_out = ("parallel",)
    return {key: as_judged(value) for key, value in given.items() if key not in left_out}


def columns_of(spec: object) -> tuple[str, ...]:
    """Columns of the prompts that a reward reads."""
    match spec:
        case MathVerifierSpec():
            return (spec.answer,)
        case JsonVerifierSpec():
            return () if spec.schema_column is None else (spec.schema_column,)
        case CodeVerifierSpec():
            return (spec.tests,)
        case JudgeSpec():
            asked = () if spec.ask is None else fields_of(spec.ask)
            return tuple(name for name in asked if name not in ("prompt", "completion"))
        case WinRateSpec():
            return columns_of(spec.win_rate.by)
        case _:
            return ()
