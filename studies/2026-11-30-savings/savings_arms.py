"""Names of the known settings that a sweep is held against."""

RECIPES = ("trl-grpo-0.18", "verl-ppo", "instructgpt")
NO_KL = "no KL"
