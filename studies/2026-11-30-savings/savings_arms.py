"""Names of the known settings that a sweep is held against, and the length of a run."""

RECIPES = ("trl-grpo-0.18", "verl-ppo", "instructgpt")
NO_KL = "no KL"
TRIAL_STEPS = 80
"""Of a whole trial in sweeps/kitchen.yaml."""
