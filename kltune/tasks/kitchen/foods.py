"""What a cook knows: 66 foods, how each is cooked and for how many minutes.

Times are ordinary kitchen times for a usual portion; the two ends are in minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Method = Literal["boil", "roast", "fry", "steam", "bake"]


@dataclass(frozen=True, slots=True)
class Food:
    """One food; ``low`` and ``high`` are the usual cooking time in minutes."""

    name: str
    method: Method
    low: int
    high: int


_TIMES: Final[dict[Method, dict[str, tuple[int, int]]]] = {
    "boil": {
        "eggs": (9, 11),
        "spaghetti": (8, 10),
        "brown rice": (40, 45),
        "white rice": (15, 18),
        "lentils": (20, 25),
        "chickpeas": (60, 75),
        "potatoes": (16, 20),
        "sweet corn": (4, 6),
        "lobster": (12, 15),
        "macaroni": (7, 9),
        "barley": (45, 50),
        "black beans": (75, 90),
        "gnocchi": (2, 3),
        "quinoa": (13, 16),
    },
    "roast": {
        "whole chicken": (75, 90),
        "turkey breast": (80, 95),
        "pork loin": (50, 60),
        "lamb leg": (95, 110),
        "beets": (45, 60),
        "pumpkin": (35, 45),
        "garlic": (35, 40),
        "carrots": (25, 30),
        "parsnips": (30, 35),
        "cauliflower": (22, 28),
        "duck": (90, 110),
        "peppers": (20, 25),
        "eggplant": (28, 35),
    },
    "fry": {
        "steak": (6, 8),
        "pork chops": (10, 12),
        "bacon": (5, 7),
        "mushrooms": (7, 9),
        "onions": (12, 15),
        "shrimp": (3, 4),
        "scallops": (3, 5),
        "tofu": (9, 11),
        "zucchini": (5, 6),
        "pancakes": (3, 4),
        "hamburgers": (8, 10),
        "trout": (7, 8),
        "sausages": (13, 16),
    },
    "steam": {
        "broccoli": (5, 6),
        "spinach": (2, 3),
        "mussels": (5, 7),
        "dumplings": (10, 12),
        "asparagus": (4, 5),
        "cod": (8, 9),
        "artichokes": (35, 45),
        "green beans": (6, 8),
        "kale": (6, 7),
        "peas": (2, 4),
        "clams": (7, 9),
        "cabbage": (11, 13),
    },
    "bake": {
        "bread": (30, 35),
        "cookies": (10, 12),
        "muffins": (18, 22),
        "brownies": (25, 30),
        "pizza": (11, 13),
        "lasagna": (45, 55),
        "cheesecake": (55, 65),
        "biscuits": (12, 14),
        "salmon": (13, 16),
        "meatloaf": (60, 70),
        "banana bread": (55, 65),
        "scones": (14, 16),
        "apple pie": (45, 55),
        "quiche": (35, 40),
    },
}

FOODS: Final[tuple[Food, ...]] = tuple(
    Food(name, method, low, high)
    for method, times in _TIMES.items()
    for name, (low, high) in times.items()
)
"""All foods, method by method: the order that the split by food counts along."""

BY_NAME: Final[dict[str, Food]] = {food.name: food for food in FOODS}
