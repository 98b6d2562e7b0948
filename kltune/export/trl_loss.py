"""How a study sums its loss in, TRL's loss_type of the same sum out.

Read in the tags of TRL on record in kltune/export/keys, ``trainer/grpo_trainer.py`` (``_compute_loss``).
"""

from __future__ import annotations

from typing import Final

from kltune.export.key import Key
from kltune.export.target import Target
from kltune.spec.trainer import TrainerSpec

_LUSPO: Final = (1, 10, 0)
"""First release whose luspo is a sum over tokens: from 0.28.0 on, with ratios per token, padding came into it."""

WORDED: Final = (0, 22, 0)
"""First release whose token mean spans the whole batch, and whose scale_rewards is a word."""


def loss_type(trainer: TrainerSpec, target: Target, warnings: list[str]) -> Key:
    """The key; where the release has no such sum, the nearest one and a warning."""
    name, words = {
        "token-mean": ("dapo", "mean over all tokens of the batch"),
        "seq-mean-token-mean": ("grpo", "mean over completions of their token means"),
        "constant": ("dr_grpo", "sum over tokens / max_completion_length"),
        "seq-mean-token-sum": ("luspo", "sum over tokens, mean over completions"),
    }[trainer.loss_aggregation]
    if name == "dapo" and target.number < WORDED:
        name, words = "bnpo", "mean over all tokens of a micro-batch"
        warnings.append(
            "loss_type bnpo: the token mean is of each micro-batch, not of the batch; make it one"
        )
    if name == "luspo" and target.number < _LUSPO:
        name, words = "dr_grpo", "sum over tokens / max_completion_length"
        warnings.append(
            f"loss_type: TRL before 1.10.0 has no sum over tokens (luspo counts padding); dr_grpo is it / max_completion_length "
            f"({target.max_new_tokens}): a smaller gradient, which max_grad_norm sees and AdamW does not"
        )
    return Key("loss_type", name, f"{words}; policy loss and KL alike")
