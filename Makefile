# make demo    predict one H100 for examples/train_gpt.py
# make test    lint, types and tests
# Everything installs into $(VENV); another environment: make test VENV=/path/to/env
# Another index for torch (its CPU build is far smaller): make demo TORCH_INDEX=URL

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
CUDA_VENV ?= .venv-cuda
CUDA_TORCH ?= torch==2.14.1
PYTEST_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
ROOMS := maya.hardware maya.traces maya.emulator maya.kernel_models maya.simulator maya.pipeline maya.reports maya.cli
say = @printf '\n==> %s\n'

.PHONY: demo test lint types tests slow-tests train-models test-cuda-build install clean
.DEFAULT_GOAL := test

install: $(VENV)/.installed

$(BIN)/python:
	$(say) "creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Maya needs Python 3.11 or newer: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)

# Maya itself depends on torch>=2.13, which pip would satisfy with the newest build there is; the one
# it is tested with comes first, and an environment that has torch keeps the torch it has.
$(VENV)/.installed: pyproject.toml setup.py | $(BIN)/python
	@$(BIN)/python -c 'import torch' 2>/dev/null || { \
		printf '\n==> installing %s (a few minutes)\n' '$(TORCH)'; \
		$(PIP) install $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) '$(TORCH)' numpy; }
	$(say) "installing Maya and its tools into $(VENV)"
	@$(PIP) install -e '.[dev]'
	@touch $@

demo: install
	$(say) "maya run examples/train_gpt.py (the first run compiles the emulator, about a minute)"
	@$(BIN)/maya run -f -o demo.maya examples/train_gpt.py
	@printf '\nTimeline: '; ls -d $(CURDIR)/demo.maya/timeline.*
	@echo "Open it at https://ui.perfetto.dev, or show the summary again: $(BIN)/maya report demo.maya"

test: lint types tests

lint: install
	$(say) "ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: install
	$(say) "mypy"
	@$(BIN)/mypy --namespace-packages $(addprefix -p ,$(ROOMS))

tests: install
	$(say) "pytest"
	@$(BIN)/python -m pytest -m 'not slow and not benchmark' $(PYTEST_ARGS)

slow-tests: install
	$(say) "pytest, slow tests"
	@$(BIN)/python -m pytest -m 'slow' $(PYTEST_ARGS)

# The CUDA build of torch without a driver: several GB, not part of `make test`.
test-cuda-build:
	@$(MAKE) --no-print-directory install VENV='$(CUDA_VENV)' TORCH='$(CUDA_TORCH)'
	$(say) "maya run examples/train_gpt.py on the CUDA build"
	@$(CUDA_VENV)/bin/python -c 'import torch, sys; print("torch", torch.__version__); sys.exit(torch.version.cuda is None)' \
		|| { echo "$(CUDA_VENV) has no CUDA build of torch" >&2; exit 1; }
	@$(CUDA_VENV)/bin/maya run -f -o cuda-build.maya examples/train_gpt.py
	$(say) "pytest on the CUDA build"
	@$(CUDA_VENV)/bin/python -m pytest -m 'not slow and not benchmark' tests/emulator $(PYTEST_ARGS)

# Fits the formulas and trains the trees again from the measured rows; the same rows give the same files.
DATA ?= ../shared/data
train-models: install
	$(say) "fitting and training on $(DATA) (under half an hour on two cores)"
	@$(BIN)/python -m maya.kernel_models.fit --data $(DATA)
	@$(BIN)/python -m maya.kernel_models.fit.learned_families --data $(DATA)

clean:
	rm -rf $(VENV) $(CUDA_VENV) demo.maya cuda-build.maya
