"""The search: the only package that speaks Optuna."""
