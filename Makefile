PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# what is imported is compiled then; compiling all 16,000 files at once takes longer than the rest of the installation
INSTALL := $(BIN)/pip install --disable-pip-version-check --no-compile

PYTEST := $(BIN)/pytest -n auto --dist loadscope --no-loadscope-reorder

# some images switch this on; then every process of a test or of the demo compiles torch anew, for 8 seconds
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test check test-all lint docs pictures attack bench gpu mutants bom

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/installed ## install what is missing, train a small transformer and watch it in the browser
	$(BIN)/tracer demo $(ARGS)

test: $(VENV)/installed-test node_modules/installed ## install what is missing (Chromium too), then format, lint, types and the tests that say the product works
	scripts/install-chromium
	@$(MAKE) --no-print-directory check

check: $(VENV)/installed-test node_modules/installed lint ## what `make test` checks
	$(PYTEST) $(ARGS)

test-all: $(VENV)/installed-dev node_modules/installed ## what `make test` leaves: the second tier, and a case of each test of the first again, with signatures checked
	scripts/install-chromium
	$(PYTEST) --thorough --after-first $(ARGS)

lint: $(VENV)/installed-test node_modules/installed
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyrefly check --summary=none --output-format=min-text
	scripts/node biome ci --error-on-warnings tracer/pictures tests/pictures
	scripts/node tsc
	scripts/node node --test "tests/pictures/scripts/*.test.mjs"

docs: $(VENV)/installed-dev ## write the documentation site to build/docs: strictly, and nothing is fetched
	$(BIN)/sphinx-build -W --keep-going -q -d build/doctrees docs build/docs $(ARGS)
	@echo build/docs/index.html

pictures: $(VENV)/installed-dev ## photograph the demo for README, trained first if need be
	scripts/install-chromium
	PYTHONPATH=. $(BIN)/python scripts/pictures

attack: $(VENV)/installed-dev ## kill, cut, damage and fuzz everything (hours), and print the table of what came out
	$(BIN)/python -m tests.attacks $(ARGS)

bench: $(VENV)/installed-dev ## measure every speed and memory claim
	$(BIN)/python -m benchmarks $(ARGS)

gpu: $(VENV)/installed ## on a machine with CUDA: train, compare with the CPU and time there, in under 10 minutes, as one table
	$(BIN)/python -m benchmarks.gpu $(ARGS)

mutants: $(VENV)/installed-dev ## change the code in 40 small wrong ways a room, and count how many the tests notice (hours)
	$(BIN)/python -m benchmarks.mutants $(ARGS)

bom: ## write the bill of materials (CycloneDX) of what `make demo` installs, and builds with, to build/bom.json, by a tool in a place of its own
	$(PYTHON) -m venv build/bom
	build/bom/bin/pip install -q --disable-pip-version-check cyclonedx-bom==7.5.0
	cat requirements.lock requirements-build.lock requirements-torch.lock | build/bom/bin/cyclonedx-py requirements \
	  --pyproject pyproject.toml --output-reproducible -o build/bom.json -

$(VENV)/installed: requirements.lock requirements-build.lock requirements-torch.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	  echo "manyeyes needs Python 3.11, 3.12 or 3.13, but $(PYTHON) --version says: $$($(PYTHON) --version 2>&1)" >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes --no-deps -r requirements.lock -r requirements-build.lock
	$(INSTALL) -r requirements-torch.lock
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed requirements-test.lock
	$(INSTALL) -q --require-hashes --no-deps -r requirements-test.lock
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed-test requirements-dev.lock
	$(INSTALL) -q --require-hashes --no-deps -r requirements-dev.lock
	@touch $@

node_modules/installed: package-lock.json $(VENV)/installed-test
	scripts/node npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch $@
