# Everything runs in a .venv of this checkout, installed from the lock files.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INSTALL := $(PIP) install --require-hashes --no-deps --no-build-isolation # the locks are complete

.DEFAULT_GOAL := help
.PHONY: help demo test quick soak bench docs check lint types contracts tests fix lock clean

# Checks run beside tests: each of them keeps one core busy, some of the time.
TOGETHER := $(MAKE) --no-print-directory --jobs 3
# Without bytecode every program and worker that tests start compiles 3,000 modules anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## show this help
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/demo ## release a real experiment and show what was found
	@$(BIN)/clusterdp demo

test: lint ## lint, types, import contracts and all tests
	@$(TOGETHER) types contracts tests

quick: lint ## what a change needs first: check, and unit tests; IN=privatizers/noise for one room
	@$(TOGETHER) types contracts tests TIER="unit and not soak"

soak: $(VENV)/test ## what CI has no time for; KIND=reading CASES=500 for odd files of a kind
	@$(if $(KIND),,$(BIN)/python -m pytest -m soak &&) \
		KIND="$(KIND)" CASES="$(CASES)" CASE="$(CASE)" SIGNATURE="$(SIGNATURE)" \
		$(BIN)/python -m tests.fuzz.soak

bench: $(VENV)/test ## speed and memory beside baselines; SIZE=100m or BENCH="cases" for more
	@$(BIN)/python -m tests.benchmarks.bench $(if $(SIZE),--size $(SIZE)) $(BENCH)

docs: $(VENV)/test ## the documentation as a site: site/index.html
	@$(BIN)/sphinx-build -E -a -q -W --keep-going -c docs . site
	@echo "$(CURDIR)/site/index.html"

check: lint ## lint, types and import contracts alone
	@$(TOGETHER) types contracts

lint: $(VENV)/test
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .

types: $(VENV)/test
	@$(BIN)/mypy

contracts: $(VENV)/test # a page where one is broken, else a line
	@told=$$($(BIN)/lint-imports) && echo "$$told" | grep "^Contracts:" || (echo "$$told"; false)

tests: $(VENV)/test
	@$(BIN)/python -m pytest $(if $(TIER),-m "$(TIER)") \
		-n auto --maxprocesses 4 --dist worksteal $(if $(IN),tests/$(IN))

fix: $(VENV)/test ## format the code and mend what the linter can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: $(VENV)/build ## bring the lock files up to date with pyproject.toml
	$(PIP) install uv
	$(BIN)/uv pip compile $(LOCK) requirements-build.in --output-file requirements-build.lock
	$(BIN)/uv pip compile $(LOCK) pyproject.toml --extra demo --output-file requirements.lock
	$(BIN)/uv pip compile $(LOCK) pyproject.toml --extra demo --extra distributed \
		--extra docs --extra test --output-file requirements-test.lock

clean: ## remove the environment, caches and the demo's files
	rm -rf $(VENV) clusterdp-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site

LOCK := --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate

$(VENV)/build: requirements-build.lock
	@echo "making $(VENV) …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| (echo "Python 3.11 or later is needed; name it with make PYTHON=…" && false)
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes --no-deps --only-binary :all: -r $<
	@touch $@

$(VENV)/demo: requirements.lock pyproject.toml $(VENV)/build
	@echo "installing locked dependencies (a minute or three) …"
	@$(INSTALL) -r $<
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/test: requirements-test.lock $(VENV)/demo
	@echo "installing locked test dependencies …"
	@$(INSTALL) -r $<
	@touch $@
