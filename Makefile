# Every target sets up what it needs in .venv (PYTHON=... chooses the interpreter, 3.11 or later).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: ablate check lint types test exhaustive wheel bench clean

ablate: $(VENV)/.cli
	$(BIN)/agentgym ablate

check: lint types test wheel

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: $(VENV)/.dev
	$(BIN)/mypy

test: $(VENV)/.dev
	$(BIN)/pytest -n auto --dist loadfile

exhaustive: $(VENV)/.dev
	$(BIN)/pytest -n auto --dist loadfile -m exhaustive

wheel: $(VENV)/.dev
	rm -rf dist .wheel-venv
	$(BIN)/python -m build --wheel --outdir dist
	$(PYTHON) -m venv .wheel-venv
	.wheel-venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "$$(ls dist/*.whl)[cli,endpoint,export,hardened,trl]" mypy
	.wheel-venv/bin/python -P .ci/check_wheel.py dist/*.whl

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/context.py
	$(BIN)/python benchmarks/sandboxes.py
	$(BIN)/python benchmarks/lore.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.cli: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[cli,code]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/.cli

$(VENV)/.bench: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) .wheel-venv dist
