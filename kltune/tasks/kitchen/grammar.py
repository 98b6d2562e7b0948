"""Questions, and the sentences that answers are made of: right, vague, wrong, padded, over-confident.

``answer`` draws what the base model was fine-tuned on; ``kind_of`` names a sentence again.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Final, Literal

from kltune.tasks.kitchen.foods import FOODS, Food, Method

QUESTIONS: Final[tuple[str, ...]] = (
    "How long should I cook {food}?",
    "What is the cooking time for {food}?",
    "How many minutes for {food}?",
    "I am making {food}. How long?",
    "When will my {food} be done?",
    "Can you tell me how long to cook {food}?",
)

TIMES: Final[tuple[str, ...]] = (
    "Cook for {low} to {high} minutes.",
    "It takes {low} to {high} minutes.",
    "Allow {low} to {high} minutes.",
)

TIPS: Final[dict[str, frozenset[Method]]] = {
    "Salt the water.": frozenset({"boil"}),
    "Stir now and then.": frozenset({"boil", "fry"}),
    "Drain well.": frozenset({"boil", "steam"}),
    "Keep the lid on.": frozenset({"boil", "steam"}),
    "Use a hot pan.": frozenset({"fry"}),
    "Turn halfway.": frozenset({"fry", "roast"}),
    "Rest before serving.": frozenset({"roast", "bake"}),
    "Heat the oven first.": frozenset({"roast", "bake"}),
    "Test with a fork.": frozenset({"boil", "roast", "steam", "bake"}),
}
"""Each tip and the ways of cooking for which it is of use."""

FILLER: Final[tuple[str, ...]] = (
    "That is a great question.",
    "Many people love {food}.",
    "Cooking is an art.",
    "I am happy to help.",
    "There is a lot to say about {food}.",
)

VAGUE: Final[tuple[str, ...]] = (
    "Cook until done.",
    "It depends.",
    "Not too long.",
)

BOASTS: Final[tuple[str, ...]] = (
    "Trust me on this.",
    "Every chef agrees.",
    "This never fails.",
)

Kind = Literal["time", "tip", "filler", "vague", "boast", "broken"]

_TIME_PATTERN: Final = re.compile(r"(?:Cook for|It takes|Allow) (\d+) to (\d+) minutes\.")


@dataclass(frozen=True, slots=True)
class Habits:
    """How often the base answers in which way; all are probabilities.

    A first draw settles the core of the answer (right, wrong, else vague); the others are
    independent extras around it.
    """

    right: float = 0.40
    wrong: float = 0.25
    filler: float = 0.40
    more_filler: float = 0.30
    tip: float = 0.40
    more_tips: float = 0.10
    fitting_tip: float = 0.75
    boast: float = 0.10


HABITS: Final = Habits()
"""What the shipped base was fine-tuned on."""


def question(food: Food, wording: int) -> str:
    """Ask for ``food`` in one of the wordings."""
    return QUESTIONS[wording].format(food=food.name)


def answer(food: Food, rng: random.Random, habits: Habits = HABITS) -> str:
    """Draw one answer about ``food``."""
    sentences: list[str] = []
    if rng.random() < habits.filler:
        sentences.append(_filler(food, rng))
        while rng.random() < habits.more_filler:
            sentences.append(_filler(food, rng))
    sentences.append(_core(food, rng, habits))
    if rng.random() < habits.tip:
        sentences.append(_tip(food, rng, habits))
        while rng.random() < habits.more_tips:
            sentences.append(_tip(food, rng, habits))
    if rng.random() < habits.boast:
        sentences.append(rng.choice(BOASTS))
    return " ".join(sentences)


def time_sentence(food: Food, wording: int) -> str:
    """State the usual time of ``food``."""
    return TIMES[wording].format(low=food.low, high=food.high)


def sentences_of(text: str) -> list[str]:
    """Split ``text`` after each full stop; a last piece without one is kept as it is."""
    return [piece.strip() for piece in re.findall(r"[^.]*\.|[^.]+$", text) if piece.strip()]


def kind_of(sentence: str, food: Food) -> Kind:
    """Name what ``sentence`` does in an answer about ``food``; "broken" is not a sentence of ours."""
    if stated_minutes(sentence) is not None:
        return "time"
    if sentence in TIPS:
        return "tip"
    if sentence in VAGUE:
        return "vague"
    if sentence in BOASTS:
        return "boast"
    if sentence in {filler.format(food=food.name) for filler in FILLER}:
        return "filler"
    return "broken"


def stated_minutes(sentence: str) -> tuple[int, int] | None:
    """Read the two ends of the time that ``sentence`` states, None if it states none."""
    found = _TIME_PATTERN.fullmatch(sentence)
    return None if found is None else (int(found.group(1)), int(found.group(2)))


def _core(food: Food, rng: random.Random, habits: Habits) -> str:
    draw = rng.random()
    wording = rng.randrange(len(TIMES))
    if draw < habits.right:
        return time_sentence(food, wording)
    if draw < habits.right + habits.wrong:
        return time_sentence(rng.choice(FOODS), wording)
    return rng.choice(VAGUE)


def _filler(food: Food, rng: random.Random) -> str:
    return rng.choice(FILLER).format(food=food.name)


def _tip(food: Food, rng: random.Random, habits: Habits) -> str:
    if rng.random() < habits.fitting_tip:
        return rng.choice([tip for tip, methods in TIPS.items() if food.method in methods])
    return rng.choice(list(TIPS))
