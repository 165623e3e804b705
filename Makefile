# Every target sets up what it needs in .venv (PYTHON=... chooses the interpreter, 3.11 or later).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: ablate learn check lint types smoke test adapters exhaustive matrix wheel bench docs clean

ablate: $(VENV)/.cli
	$(BIN)/agentgym ablate

# A model made from nothing, trained at two and three turns, and the two ablations of it at up to six.
LEARN := runs/learn
CONTEXTS := --context none,clear_thinking,clear_results,compaction
ABLATE := $(BIN)/agentgym ablate --policy $(LEARN) --world ListWorld --set items=6 --horizons 2,3,4,5,6
learn: $(VENV)/.train
	$(BIN)/agentgym train --set items=6 --horizons 2,3 --arms none,S,P,SP,SH,SPH $(CONTEXTS) --window 800 \
		--hints 400 --rl 100 --out $(LEARN)
	$(ABLATE) --out $(LEARN)/arms
	$(ABLATE) --arms none $(CONTEXTS) --window 580 --out $(LEARN)/contexts

check: lint types test adapters wheel

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 .  # what is read as text names its encoding, for locales without UTF-8
	$(BIN)/ruff format --check --quiet .

types: $(VENV)/.dev
	$(BIN)/mypy

# Every world, wrapper, engine and command once, in under a minute.
smoke: $(VENV)/.dev
	$(BIN)/pytest -n auto tests/smoke

# A sample of the large families, which rotates with the commit (CONTRIBUTING).
test: $(VENV)/.dev
	$(BIN)/pytest -n auto --dist worksteal

# The libraries of other trainers want older releases than the tests, so they have an environment of their own.
ADAPTERS := .adapters-venv
adapters: $(ADAPTERS)/.done
	$(ADAPTERS)/bin/python -m pytest tests/training/integrations/test_verifiers.py tests/training/integrations/test_verl.py

$(ADAPTERS)/.done: pyproject.toml constraints.txt
	$(PYTHON) .ci/preflight.py 4
	rm -rf $(ADAPTERS)
	$(PYTHON) -m venv $(ADAPTERS)
	grep -vE '^(mcp|openai|transformers)==' constraints.txt > $(ADAPTERS)/constraints.txt
	$(ADAPTERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(ADAPTERS)/constraints.txt \
		--editable '.[cli,endpoint,export,office,train,verifiers,verl]' pytest pytest-timeout pytest-xdist hypothesis
	rm -rf $(ADAPTERS)/lib/python3*/site-packages/tests  # verl installs its own, which hide ours
	touch $@

exhaustive: $(VENV)/.dev
	$(BIN)/pytest -n auto --dist worksteal -m exhaustive

# The tests as other machines would run them; ROWS="nonroot load" takes some of the rows (docs/testing.md).
matrix: $(VENV)/.dev
	$(BIN)/python .ci/matrix.py $(ROWS)

wheel: $(VENV)/.dev
	rm -rf dist .wheel-venv
	$(BIN)/python -m build --wheel --outdir dist
	$(PYTHON) -m venv .wheel-venv
	.wheel-venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "$$(ls dist/*.whl)[cli,endpoint,export,mcp,multi,office,ray,tensorboard,trl]" mypy
	.wheel-venv/bin/python -P .ci/check_wheel.py dist/*.whl

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/hostile.py --stacks none,all --rounds 1
	$(BIN)/python benchmarks/context.py
	$(BIN)/python benchmarks/sandboxes.py
	$(BIN)/python benchmarks/workbench.py
	$(BIN)/python benchmarks/rollouts.py
	$(BIN)/python benchmarks/lore.py
	$(BIN)/python benchmarks/agentlongbench.py
	$(BIN)/python benchmarks/gsm_agent.py
	$(BIN)/python benchmarks/office.py
	$(BIN)/python benchmarks/loca.py
	$(BIN)/python benchmarks/teams.py

# The tables of options, from the registry; a test compares.
docs: $(VENV)/.dev
	$(BIN)/python docs/build_worlds.py

$(VENV)/bin/python:
	$(PYTHON) .ci/preflight.py $(if $(filter ablate $(VENV)/.cli,$(MAKECMDGOALS)),1,4)
	$(PYTHON) -m venv $(VENV)

$(VENV)/.cli: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[cli,code]'
	touch $@

$(VENV)/.train: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[cli,code,train]'
	touch $@ $(VENV)/.cli

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/.cli $(VENV)/.train

$(VENV)/.bench: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) $(ADAPTERS) .wheel-venv dist
