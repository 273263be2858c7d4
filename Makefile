# Everything runs in a .venv of this checkout, installed from the lock files.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The locks are complete. pip is quiet for minutes: beside it a line grows with how many packages it has brought,
# and then how many are in place.
TICK := 5
INSTALL = told=$(VENV)/installing.txt; : > $$told; printf 'up to %d packages; brought:' $$(grep -c == $<); \
	(while sleep $(TICK) > /dev/null 2>&1; do \
		if grep -q ^Installing $$told; then [ "$$last" ] || printf '; in place:'; last=1; \
			printf ' %d' $$(ls -d $(VENV)/lib/python*/site-packages/*.dist-info 2> /dev/null | wc -l); \
		else printf ' %d' $$(grep -cE '^(Collecting|Processing)' $$told); fi; done) & \
	trap "kill $$!; wait $$! 2> /dev/null; echo" EXIT; trap 'exit 1' INT TERM; \
	$(BIN)/python -um pip --disable-pip-version-check install --require-hashes --no-deps \
		--no-build-isolation -r $< > $$told

.DEFAULT_GOAL := help
.PHONY: help demo test test-all quick slow distances soak nights bench docs explorer supply pythons check lint types contracts tests fix lock clean

PYTHONS := 3.11 3.12 3.13 3.14
# The time that is written into what is built: that of the commit, where there is one.
DATED = SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 1580601600)

# Checks run beside tests: each of them keeps one core busy, some of the time.
TOGETHER := $(MAKE) --no-print-directory --jobs 3
# Without bytecode every program and worker that tests start compiles 3,000 modules anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/demo ## release a real experiment and show what was found
	@$(BIN)/clusterdp demo

test: lint ## lint, types, import contracts and all tests but those of tests/support/slow.txt
	@$(TOGETHER) types contracts tests

test-all: ## all tests at once, as CI runs them
	@$(MAKE) --no-print-directory test TIER="not soak"

quick: lint ## what a change needs first: check, and unit tests; IN=privatizers/noise for a room, IN=effects for a house
	@$(TOGETHER) types contracts tests TIER="unit and not soak and not slow" OTHERS=1

slow: $(VENV)/test ## the list of slow tests made anew, from what each takes on this machine
	@rm -rf build/costs && mkdir -p build/costs/all build/costs/rest
	@CLUSTERDP_TEST_COSTS=$(CURDIR)/build/costs/all $(MAKE) --no-print-directory tests TIER="not soak"
	@$(BIN)/python -m tests.support.slow build/costs/all
	@CLUSTERDP_TEST_COSTS=$(CURDIR)/build/costs/rest $(MAKE) --no-print-directory tests
	@$(BIN)/python -m tests.support.slow build/costs/rest

distances: $(VENV)/test ## ten runs of the statistical tests into their record; IN=estimators for some
	@$(BIN)/python -m tests.support.distances $(addprefix tests/,$(IN))

soak: $(VENV)/test ## what CI has no time for; KIND=reading CASES=500 for odd files of a kind
	@$(if $(KIND),,$(BIN)/python -m pytest -m soak && $(BIN)/python -m tests.nights.soak &&) \
		KIND="$(KIND)" CASES="$(CASES)" CASE="$(CASE)" \
		$(BIN)/python -m tests.fuzz.soak

nights: $(VENV)/test ## simulated nights with faults; NIGHTS=2000, or LIFE=17 to see one again
	@NIGHTS="$(NIGHTS)" LIFE="$(LIFE)" $(BIN)/python -m tests.nights.soak

bench: $(VENV)/test ## speed and memory beside baselines; SIZE=100m or BENCH="cases" for more
	@$(BIN)/python -m tests.benchmarks.bench $(if $(SIZE),--size $(SIZE)) $(BENCH)

docs: $(VENV)/test ## the documentation as a site: site/index.html
	@$(BIN)/sphinx-build -E -a -q -W --keep-going -c docs . site
	@echo "$(CURDIR)/site/index.html"

explorer: $(VENV)/test ## fetch what `clusterdp report --explorer` puts into its pages, by npm
	@$(BIN)/python -m deploy.supply engine

supply: $(VENV)/test ## wheel, bill of materials, licences into dist; DATABASE=osv to audit
	@rm -rf dist
	@$(DATED) $(BIN)/python -m hatchling build -t wheel -d dist
	@$(DATED) $(BIN)/python -m deploy.supply report --into dist
	@$(BIN)/python -m deploy.supply audit $(if $(DATABASE),--database "$(DATABASE)")

check: lint ## lint, types and import contracts alone
	@$(TOGETHER) types contracts

lint: $(VENV)/test
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .

types: $(VENV)/test
	@$(BIN)/mypy

contracts: $(VENV)/test # a page where one is broken, else a line
	@told=$$($(BIN)/lint-imports) && echo "$$told" | grep "^Contracts:" || (echo "$$told"; false)

# A house's tests stand in folders of its name; the night's are those of the code that are in no other's.
HOUSES := operate effects lab
NIGHT := $(addprefix tests/,flows privatizers estimators schemas) $(HOUSES:%=--ignore-glob='tests/*/%')
WHERE = $(if $(filter night,$(IN)),$(NIGHT),$(or $(sort $(wildcard tests/$(IN) tests/*/$(IN))),$(error there are no tests/$(IN))))

# A thread a core in one worker, one in the others: no race is hidden. On two cores a fourth adds up to a fifth of work.
tests: $(VENV)/test
	@$(BIN)/python -m pytest -m "$(or $(TIER),not soak and not slow)" --dist worksteal --tx popen \
		--tx "$(or $(OTHERS),2)*popen//env:POLARS_MAX_THREADS=1" $(if $(IN),$(WHERE))

fix: $(VENV)/test ## format the code and mend what the linter can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: $(VENV)/build ## bring the lock files up to date; UPGRADE= adds what is new and moves nothing else
	$(PIP) install uv
	$(BIN)/uv pip compile $(LOCK) requirements-build.in --output-file requirements-build.lock
	$(BIN)/uv pip compile $(LOCK) pyproject.toml --extra demo --output-file requirements.lock
	$(BIN)/uv pip compile $(LOCK) pyproject.toml --extra demo --extra distributed \
		--extra docs --extra test --output-file requirements-test.lock

pythons: $(VENV)/build ## ask the package index whether the locks serve each Python of PYTHONS
	$(PIP) install uv
	@set -e; for python in $(PYTHONS); do \
		$(BIN)/uv pip install --quiet --dry-run --target build/none --python-version $$python \
			--python-platform x86_64-manylinux_2_28 --only-binary :all: --no-binary causaldata \
			--require-hashes -r requirements-test.lock; \
		echo "Python $$python: the locks are complete, with wheels for Linux"; done

clean: ## remove the environment, caches and the demo's files
	rm -rf $(VENV) clusterdp-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site

UPGRADE := --upgrade
LOCK := --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes \
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
	@$(INSTALL)
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/test: requirements-test.lock $(VENV)/demo
	@echo "installing locked test dependencies …"
	@$(INSTALL)
	@touch $@
