# Everything a person needs: make run, make test. Both prepare .venv first, which is quick when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: run test test-rest proofs test-gpu check chaos bench learn kernels mlflow-releases dist setup clean

run: setup ## the main job: search, train, checkpoint, compare
	$(BIN)/sweep run search_spaces/quickstart.yaml --trials 8 --name quickstart-$$(date +%Y%m%d-%H%M%S)

test: setup ## the tests to run while you work: all but the slow ones
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations 30 -m "not slow and not proof"

test-rest: setup ## the slow tests: kills, real servers, many processes
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations 30 -m "slow and not proof"

proofs: setup ## claims of tests again, at a larger scale, with more kills; before a release
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 30 -m proof

# Of a machine with a GPU its own Python is named, into which nothing is installed.
GPU_PYTHON = $(if $(filter file,$(origin PYTHON)),$(or $(wildcard $(BIN)/python),$(PYTHON)),$(PYTHON))

test-gpu: ## what needs a GPU: make test-gpu PYTHON=python3, with torch from 2.11 on; says how many ran
	$(GPU_PYTHON) -m pytest -m gpu tests/gpu

check: setup ## format, lint, types, import floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

chaos: setup ## break everything that may break, for some hours; goes on where it was stopped
	$(BIN)/python -m benchmarks.chaos

bench: setup ## measure speed beside peers and limits, for about two hours; goes on where it was stopped
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.sampling
	$(BIN)/python -m benchmarks.replay

learn: setup ## train every algorithm over several seeds, for hours; goes on where it was stopped
	$(BIN)/python -m benchmarks.learning
	$(BIN)/python -m benchmarks.learning.stored
	$(BIN)/python -m benchmarks.learning.searched
	$(BIN)/python -m benchmarks.learning --report-only

kernels: setup ## compile the gradient steps of PPO and A2C; needs a C compiler
	$(BIN)/python -m trainables.learners.fused.compiled

mlflow-releases: setup ## test the MLflow store with several releases of MLflow, each in an environment of its own
	$(BIN)/python -m benchmarks.mlflow_releases

dist: setup ## build wheel and source archive into dist/ and check what is in them
	$(BIN)/python -m tests.support.distribution

setup: $(STAMP) ## .venv with the pinned dependencies

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable ".[dev]"
	$(BIN)/python -m compileall -q -j 0 -x "/tests?/" $(VENV)/lib > /dev/null || true # as pip does, but on all cores; templates fail
	touch $@

clean: ## remove what make setup and the tools left; your sweeps stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info build
