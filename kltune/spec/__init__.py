"""What was asked: frozen pydantic models of the spec. No torch, no Optuna, no MLflow."""
