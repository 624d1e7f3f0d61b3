# The usual commands are make run and make test. Both create .venv first; nothing is done if it is up to date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: run test test-rest proofs test-gpu check chaos bench learn kernels mlflow-releases dist setup clean

run: setup ## run a small sweep: PPO on CartPole, 8 trials
	$(BIN)/sweep run search_spaces/quickstart.yaml --trials 8 --name quickstart-$$(date +%Y%m%d-%H%M%S)

test: setup ## run the quick tests, about 10,000; run them while you work
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations 30 -m "not slow and not proof"

test-rest: setup ## run the slow tests: kills, real servers, many processes
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations 30 -m "slow and not proof"

proofs: setup ## repeat tests at a larger scale, with more kills; run them before a release
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 30 -m proof

# On a machine with a GPU, use its own Python, into which nothing is installed.
GPU_PYTHON = $(if $(filter file,$(origin PYTHON)),$(or $(wildcard $(BIN)/python),$(PYTHON)),$(PYTHON))

test-gpu: ## run the tests that need a GPU: make test-gpu PYTHON=python3, with torch 2.11 or newer
	$(GPU_PYTHON) -m pytest -m gpu tests/gpu

check: setup ## check format, lint, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

chaos: setup ## kill and break every part for some hours; continues where it was stopped
	$(BIN)/python -m benchmarks.chaos

bench: setup ## measure speed next to other libraries for about two hours; continues where it was stopped
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.sampling
	$(BIN)/python -m benchmarks.replay

learn: setup ## train every algorithm over several seeds for hours; continues where it was stopped
	$(BIN)/python -m benchmarks.learning
	$(BIN)/python -m benchmarks.learning.stored
	$(BIN)/python -m benchmarks.learning.searched
	$(BIN)/python -m benchmarks.learning --report-only

kernels: setup ## compile the gradient steps of PPO and A2C; needs a C compiler
	$(BIN)/python -m trainables.learners.fused.compiled

mlflow-releases: setup ## test the MLflow store with several releases of MLflow, each in its own environment
	$(BIN)/python -m benchmarks.mlflow_releases

dist: setup ## build wheel and source archive into dist/ and check what is in them
	$(BIN)/python -m tests.support.distribution

setup: $(STAMP) ## create .venv with the pinned dependencies

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable ".[dev]"
	$(BIN)/python -m compileall -q -j 0 -x "/tests?/" $(VENV)/lib > /dev/null || true # as pip does, but on all cores and without packages' tests; templates fail
	touch $@

clean: ## remove .venv and all caches; sweeps are kept
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info build
