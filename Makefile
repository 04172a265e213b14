# Everything a person or a CI needs: `make help` lists it.
# Set-up is done by stamp files inside .venv, so a target sets up what it lacks and nothing twice.

PYTHON ?= python3
# Extra words for the command behind demo, test, bench or serve, for example: make test ARGS="-k lease"
ARGS ?=
# Set to --upgrade to take newer versions, or to --upgrade-package=NAME for one of them
LOCK_ARGS ?=
# How long `make soak` disturbs each engine.
SOAK_SECONDS ?= 900
SOAK_FAULTS := --faults kill,stop,freeze,cut,hold,rollback,cancel

BIN := .venv/bin
# Twice quiet: only errors. Once would still print a warning for each mirror that lacks a package.
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check
COMPILE := build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url $(LOCK_ARGS)

# Keep bytecode, also where the environment says otherwise: tests start hundreds of processes, and pytest rewrites
# every module.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo quick test coverage compiled check clients databases soak mutants bench serve release lock clean

# What `make quick` runs: no Java, no browser, no process but the PostgreSQL server of the wheel.
QUICK := tests/architecture tests/domain tests/client tests/conformance tests/engines/sqlite tests/model
# Tests wait for processes now and then: three of them keep two cores busy.
PYTEST := -m pytest -n 3 --dist loadgroup

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: .venv/.spark-ready ## see Penstock work, in a minute or two
	@$(BIN)/penstock demo $(ARGS)

quick: compiled ## run the tests that need neither Java nor a browser nor server processes: under two minutes
	$(BIN)/python $(PYTEST) -m "not slow and not async_client and not database_server" $(QUICK) $(ARGS)

test: check clients databases .venv/spark.jsa compiled ## check, then run all tests
	$(BIN)/python $(PYTEST) $(ARGS)

coverage: clients databases .venv/spark.jsa compiled ## run all tests and print how much of the source they ran
	@rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m coverage run $(PYTEST) $(ARGS)
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report

# Before hundreds of processes do it at once.
compiled: .venv/.test-ready
	@$(BIN)/python -m compileall -q -j 0 src tests

check: .venv/.test-ready ## formatting, lint and strict types
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

clients: .venv/.redis7-ready .venv/.frameworks-ready
	@sh tests/servers/clients/install.sh
	@sh tests/servers/http/dashboard/install.sh
	@sh tests/user_code/install.sh

databases:
	@sh tests/engines/postgres/sql/install.sh
	@sh tests/engines/mariadb/install.sh

# The server process is not killed here: what it uses is to stay flat.
soak: .venv/.test-ready ## chaos for half an hour, on SQLite and on PostgreSQL: laws hold, nothing grows
	@mkdir -p build/soak && rm -f build/soak/store.db*
	$(BIN)/penstock chaos --url sqlite:///build/soak/store.db --seconds $(SOAK_SECONDS) $(SOAK_FAULTS) $(ARGS)
	$(BIN)/penstock chaos --server embedded --seconds $(SOAK_SECONDS) $(SOAK_FAULTS),server $(ARGS)

mutants: .venv/.test-ready ## plant faults one by one: every one must be caught by its tests
	$(BIN)/python -m scripts.mutants $(ARGS)

bench: .venv/.bench-ready ## measure Penstock and its peers side by side
	$(BIN)/python -m bench $(ARGS)

serve: .venv/.server-ready ## run the server: Redis protocol on port 4777, HTTP on 4778
	@$(BIN)/penstock serve $(ARGS)

release: .venv/.test-ready ## build the distribution, check it, and run it in an empty environment
	$(BIN)/python scripts/release.py

lock: ## renew requirements/*.txt (newer versions: LOCK_ARGS=--upgrade)
	"$(PYTHON)" -m venv build/lock
	build/lock/bin/python -m pip --quiet --quiet --disable-pip-version-check install uv
	$(COMPILE) pyproject.toml requirements/run.in -o requirements/run.txt
	$(COMPILE) pyproject.toml --extra server requirements/run.in -c requirements/run.txt -o requirements/server.txt
	$(COMPILE) pyproject.toml --extra spark requirements/run.in -c requirements/run.txt -o requirements/spark.txt
	$(COMPILE) pyproject.toml --all-extras requirements/test.in -o requirements/test.txt
	$(COMPILE) pyproject.toml --all-extras requirements/bench.in -o requirements/bench.txt
	$(COMPILE) requirements/redis7.in -o requirements/redis7.txt
	$(COMPILE) requirements/frameworks.in -o requirements/frameworks.txt
	$(COMPILE) requirements/redis_jobs.in -o requirements/redis_jobs.txt

clean: ## remove the environment and everything made
	rm -rf .venv build dist tests/servers/clients/node/node_modules tests/user_code/node/node_modules .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

.venv/.run-ready: requirements/run.txt pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo 'Penstock needs Python 3.11 or newer and "$(PYTHON)" is not: name one with PYTHON=...' >&2; exit 1; }
	"$(PYTHON)" -m venv .venv
	$(PIP) install --require-hashes -r requirements/run.txt
	$(PIP) install --no-build-isolation --no-deps --editable .
	@# the package came without its dependencies: this fails when the lock has fallen behind pyproject.toml
	$(BIN)/python -m pip --disable-pip-version-check check
	@touch $@

.venv/.server-ready: .venv/.run-ready requirements/server.txt
	$(PIP) install --require-hashes -r requirements/server.txt
	@touch $@

.venv/.spark-ready: .venv/.run-ready requirements/spark.txt
	$(PIP) install --require-hashes -r requirements/spark.txt
	@touch $@

.venv/.test-ready: .venv/.run-ready requirements/test.txt
	$(PIP) install --require-hashes -r requirements/test.txt
	@touch $@

.venv/.redis7-ready: .venv/.test-ready requirements/redis7.txt
	$(PIP) install --require-hashes --upgrade --target .venv/clients/redis-py-7 -r requirements/redis7.txt
	@touch $@

.venv/.frameworks-ready: .venv/.test-ready requirements/frameworks.txt
	$(PIP) install --require-hashes --upgrade --target .venv/clients/frameworks -r requirements/frameworks.txt
	@touch $@

# Java's classes as it has them in memory: every Spark that the tests start is up in two thirds of the time
.venv/spark.jsa: .venv/.test-ready tests/spark/class_data.py tests/java.py
	@$(BIN)/python -m tests.spark.class_data $@

.venv/.bench-ready: .venv/.test-ready .venv/.frameworks-ready requirements/bench.txt requirements/redis_jobs.txt
	$(PIP) install --require-hashes -r requirements/bench.txt
	$(PIP) install --require-hashes --upgrade --target .venv/clients/redis-jobs -r requirements/redis_jobs.txt
	@touch $@
