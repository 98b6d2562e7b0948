"""Points in, which of them nothing beats out: the Pareto set where more is better on every axis."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def non_dominated(points_NA: Floats) -> NDArray[np.bool_]:
    """Mark the points of ``points_NA`` (points x axes) that no other point dominates.

    A point dominates another where it is at least as high on every axis and higher on one. Equal
    points don't dominate each other: all of them are marked, or none. A point with a value that is
    not finite takes no part and is never marked.
    """
    marked = np.zeros(len(points_NA), dtype=bool)
    finite = np.flatnonzero(np.isfinite(points_NA).all(axis=1))
    # In falling order of the first axis, then the next: only an earlier point can dominate a later one.
    order = finite[np.lexsort(-points_NA[finite].T[::-1])]
    front = np.empty((len(order), points_NA.shape[1]))
    count = 0
    for index in order:
        point, kept = points_NA[index], front[:count]
        at_least = (kept >= point).all(axis=1)
        if bool((at_least & (kept > point).any(axis=1)).any()):
            continue
        front[count] = point
        count += 1
        marked[index] = True
    return marked
