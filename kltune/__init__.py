"""kltune: measure the KL setting of an RL run before you pay for it."""

__version__ = "0.1.0"
