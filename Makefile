# Two commands do everything: `make demo` and `make test`. `make` alone lists the others.
PYTHON ?= python3.11
VENV ?= .venv
TORCH_INDEX ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 was not found; say where it is: make demo PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# PyTorch first: on Linux, TORCH_INDEX=https://download.pytorch.org/whl/cpu takes the small CPU build.
$(VENV)/.torch: constraints.txt | $(BIN)/python
	$(PIP) torch $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	@touch $@

$(VENV)/.package: pyproject.toml constraints.txt $(VENV)/.torch
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.package
	$(PIP) -e '.[dev,meteor]'
	@touch $@

demo: $(VENV)/.package ## install, then show Sightline at work on the example photos
	@PATH="$(BIN):$$PATH" VENV="$(VENV)" sh examples/demo.sh

install: $(VENV)/.package ## make the virtual environment with the package

dev: $(VENV)/.dev ## the same with everything tests need

checks: $(VENV)/.dev ## lint, format and type checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: checks ## checks, then every test; coverage is counted without the tests that need datasets
	$(BIN)/python -m pytest -n 2 -m "not data" --cov --cov-report=term:skip-covered --cov-fail-under=90
	$(BIN)/python -m pytest -n 2 -m data --no-cov || [ $$? -eq 5 ]

$(VENV)/.bench: pyproject.toml constraints.txt $(VENV)/.dev
	$(PIP) -e '.[bench]'
	@touch $@

bench: $(VENV)/.bench ## benchmarks/report.md: every benchmark beside its peer; ONLY=metrics runs one part
	$(BIN)/python benchmarks/bench.py $(if $(ONLY),--only $(ONLY))

docs: $(VENV)/.dev ## build the documentation into site/
	$(BIN)/mkdocs build --strict

dist: $(VENV)/.dev ## build wheel and sdist into dist/
	rm -rf dist
	$(BIN)/python -m hatchling build

try-wheel: dist ## install the wheel and what it needs in a clean environment, and caption a photo; PYTHON=python3.12
	rm -rf dist/clean && $(PYTHON) -m venv dist/clean
	dist/clean/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) dist/*.whl
	cd dist && clean/bin/sightline doctor && clean/bin/sightline caption ../examples/cat.jpg
	rm -rf dist/clean

audit: $(VENV)/.dev ## ask PyPI for known weaknesses of what is installed
	$(PIP) pip-audit
	$(BIN)/pip-audit --local --skip-editable

clean: ## remove the virtual environment and everything built
	rm -rf $(VENV) site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-output

.PHONY: help demo install dev checks test bench docs dist try-wheel audit clean
