# The commands of this repository. `make help` lists them; a line's text after ## is its help.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.ONESHELL:

BIN := .venv/bin
# What `make bench` keeps its jobs in: sqlite, mysql (a private MariaDB) or redis (a private one).
STORE ?= sqlite
# How many tests run at once: most of a test's time is waiting.
WORKERS ?= $(shell n=$$((2 * $$(nproc))); echo $$((n < 16 ? n : 16)))
# The tests of `make test`.
USUAL := not foreign and not release and not thorough and not kubernetes
# Extra arguments for the command behind a target: make test ARGS="-k retry", make bench ARGS="--only enqueue_single".
ARGS ?=

##@ Use it
.PHONY: install
install: ## set up .venv with everything; the command is .venv/bin/pinlater
	@scripts/install all

.PHONY: demo
demo: ## set up and watch a service run some thousand jobs, then look at them in the dashboard (Ctrl-C ends it)
	@scripts/install runtime
	exec $(BIN)/pinlater demo $(ARGS)

.PHONY: serve
serve: ## set up and leave a service running on var/pinlater.db (Ctrl-C ends it); ARGS=--example fills its dashboard
	@scripts/install runtime
	mkdir -p var
	exec $(BIN)/pinlater serve --store sqlite:var/pinlater.db $(ARGS)

##@ Check it
# Tests start hundreds of processes of ours: compiled modules are kept, whatever the environment says, and outside the sources.
test check test-all test-foreign test-kubernetes test-release test-second-python: export PYTHONDONTWRITEBYTECODE :=
test check test-all test-foreign test-kubernetes test-release test-second-python: export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/pycache
test check test-all test-foreign test-kubernetes test-release test-second-python: export CI := true

.PHONY: test
test: ## set up, lint and run the tests, as CI does
	@scripts/install all
	scripts/test-packages
	scripts/mysql-server
	scripts/zookeeper-server
	scripts/install redis-servers
	scripts/kubernetes-tools
	$(MAKE) lint
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "$(USUAL)" $(ARGS)
	$(MAKE) test-second-python

.PHONY: check
check: ## lint, and run the tests of one or more folders of tests: make check PART=worker, make check PART="client worker"
	@$(if $(strip $(PART)),,$(error Name the folders of tests to run: make check PART=worker))
	$(MAKE) lint
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "$(USUAL)" $(addprefix tests/,$(PART)) $(ARGS)

.PHONY: test-second-python
test-second-python: ## run the unit and contract tests on a newer Python too, if there is one
	@python=$$(scripts/second-python install)
	if [ -z "$$python" ]; then echo "There is no newer Python here"; exit 0; fi
	$${python%python}pytest -q -n $(WORKERS) --dist worksteal -p no:cacheprovider -m "$(USUAL) and not differs" tests/domain tests/wire tests/tls tests/contract

.PHONY: test-all
test-all: ## lint and run every test there is: on all server versions, in all languages, the packages; a release needs it
	@scripts/install all
	scripts/test-packages all
	scripts/mysql-server
	scripts/zookeeper-server
	scripts/install redis-servers
	scripts/kubernetes-tools
	$(MAKE) lint
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

.PHONY: test-foreign
test-foreign: ## build and run the clients in other languages: Go, Java (Finagle, too), Node
	@scripts/install all
	scripts/test-packages foreign
	$(BIN)/pytest -m foreign $(ARGS)

.PHONY: test-kubernetes
test-kubernetes: ## install the chart on a real API server; Go builds it, etcd, KEDA and Prometheus the first time, in a quarter of an hour
	@scripts/install all
	scripts/kubernetes-tools cluster
	$(BIN)/pytest -m kubernetes $(ARGS)

.PHONY: test-release
test-release: ## build the wheel, install it alone and with its extras
	@scripts/install all
	$(BIN)/pytest -m release $(ARGS)

.PHONY: lint
lint: ## formatting, lint rules, types, direction of imports
	@scripts/install all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: counts
counts: ## count how much there is to hold in one's head: calls a job, files a subject, lines; ARGS=enqueue shows what is counted
	@scripts/install all
	$(BIN)/python scripts/counts.py $(ARGS)

.PHONY: docs
docs: ## build the documentation into docs/_build/html, with the parts that follow from the code; a warning is an error
	@scripts/install all
	$(BIN)/sphinx-build -E -W --keep-going -q -b html docs docs/_build/html
	echo "docs/_build/html/index.html"

##@ Measure it and break it
.PHONY: bench
bench: ## measure this machine, some minutes, into bench/results/local.json; STORE=mysql or redis
	@scripts/install bench
	scripts/test-packages bench || true # without a Redis the peer is skipped and there is no STORE=redis, without a MariaDB no STORE=mysql
	$(BIN)/python -m bench --store $(STORE) $(ARGS)

.PHONY: bench-full
bench-full: ## the same with millions of waiting, future and finished jobs each: takes long
	@scripts/install bench
	scripts/test-packages bench || true
	$(BIN)/python -m bench --store $(STORE) --full $(ARGS)

.PHONY: bench-compare
bench-compare: ## compare the newest results with the committed ones
	@scripts/install all
	$(BIN)/python -m bench compare --store $(STORE) $(ARGS)

.PHONY: crash
crash: ## kill the server under load, again and again: make crash ARGS="--rounds 200"
	@scripts/install all
	$(BIN)/python -m tests.crash $(ARGS)

.PHONY: faults
faults: ## databases, networks and servers fail under load, on each kind of database: make faults ARGS="--kind redis --length 0.2"
	@scripts/install all
	scripts/test-packages
	scripts/mysql-server
	scripts/zookeeper-server
	$(BIN)/python -m tests.faults $(ARGS)

.PHONY: simulate
simulate: ## run simulated clusters on a virtual clock, a new seed each: make simulate ARGS="--minutes 60", ARGS="--seed 7"
	@scripts/install all
	$(BIN)/python -m tests.simulation $(ARGS)

.PHONY: soak
soak: ## every fault in full length, then hours of mixed load, watching memory, latency and the promises
	$(MAKE) faults ARGS=
	$(BIN)/python -m tests.soak $(ARGS)

##@ Make it
.PHONY: generate
generate: ## generate the Thrift types anew from the IDL (needs thrift-compiler)
	@scripts/install all
	scripts/test-packages
	$(BIN)/python -m scripts.idl --write

.PHONY: reference
reference: ## write the tables of docs/reference anew that the repository stores
	@scripts/install all
	$(BIN)/python -m scripts.reference.commands docs/reference/cli.md
	$(BIN)/python -m scripts.reference.regions

.PHONY: wheel
wheel: ## build the wheel into dist/
	@scripts/install all
	rm -f dist/pinlater-*.whl
	.venv/uv-*/bin/uv build --quiet --wheel --out-dir dist
	ls dist/*.whl

.PHONY: picture
picture: ## draw the pictures of README and docs anew: a real demo run, and pages in a browser
	@scripts/install all
	$(BIN)/python scripts/draw_demo.py
	PYTHONPATH=. $(BIN)/python scripts/draw_console.py

.PHONY: clean
clean: ## remove what was built; .venv and var/ stay
	rm -rf build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
