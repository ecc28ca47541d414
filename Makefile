# Every target sets itself up in .venv; Python 3.11+ and make are all that has to be there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test lint fmt types contracts bench mutants chaos clean help

help:
	@echo "make demo      run the example workflow with a live view, no key needed"
	@echo "make test      everything CI runs: lint, types, import contracts, tests"
	@echo "make fmt       format and fix what can be fixed"
	@echo "make bench     the figures in docs/benchmarks.md, in one table"
	@echo "make mutants   break the core on purpose; the tests must notice"
	@echo "make chaos     a thousand kill -9s, each resumed and checked"

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Penstock needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --group dev --editable .
	@touch $@

demo: $(READY)
	$(BIN)/penstock run examples/newsroom/newsroom.yaml

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

contracts: $(READY)
	$(BIN)/lint-imports

test: lint types contracts
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal

fmt: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python benchmarks/table.py $(BENCH)

mutants: $(READY)
	$(BIN)/python tests/mutants.py

chaos: $(READY)
	$(BIN)/python tests/durability/chaos.py --kills 1000 $(CHAOS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
