"""Names of the settings and models of the study of short and small looks."""

MODELS = {"small": "small", "medium": "medium", "full": "medium, all weights", "large": "large"}
"""By block, as they are called in texts."""


def arm(beta: float) -> str:
    """The name of a setting."""
    return f"k1-reward {beta:g}" if beta else "no KL"


NO_KL = arm(0.0)
