"""Completions of several known policies in, how much each counts for the reference out: multiple importance sampling.

What a tilt (`kltune.statistics.tilt`) needs of a completion is how likely it was among *all* that
were drawn. The balance heuristic (Veach & Guibas 1995) takes the policies as one mixture, each by
its number of completions. So the density of every completion under every policy must be known,
not only under the one that drew it: with the own ratio alone, a completion that another policy
would have drawn as well is counted twice. Shapes: P prompts, S policies, M completions of each
prompt, all policies' together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]


def balance(log_ratio_SPM: Floats, counts_S: NDArray[np.int64]) -> Floats:
    """Log of reference over mixture, ``[P, M]``, for each completion.

    ``log_ratio_SPM``: log of policy s over the reference at each completion, summed over its tokens;
    a row of zeros is the reference itself. ``counts_S``: completions per prompt that each policy
    drew. With the reference in the mixture no weight exceeds M / (its count), whatever the others
    do: defensive mixture sampling (Hesterberg 1995; Owen & Zhou 2000).

    Raises:
        ValueError: the counts don't add up to M, or one is below 1.
    """
    num_policies, _, num = log_ratio_SPM.shape
    if len(counts_S) != num_policies or int(counts_S.sum()) != num or int(counts_S.min()) < 1:
        raise ValueError(
            f"counts {counts_S.tolist()} must be {num_policies} numbers of at least 1 that add up to {num}"
        )
    log_share_S11 = np.log(counts_S / num)[:, None, None]
    return -logsumexp(log_ratio_SPM + log_share_S11, axis=0)
