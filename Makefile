# Two commands set up everything: `make demo` and `make test`. Both make .venv themselves.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo check test test-fast coverage bench storm format clean

.venv/installed: pyproject.toml constraints.txt
	@echo "Setting up .venv (a few minutes the first time)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]' & \
		while kill -0 $$! 2>/dev/null; do printf .; sleep 2; done; echo; wait $$!
	@touch $@

demo: .venv/installed
	$(BIN)/camp demo --out runs/demo

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/pytest -n 2

test-fast: check
	$(BIN)/pytest -n 2 -m "not slow"

coverage: .venv/installed
	$(BIN)/pytest -n 2 --cov=camp --cov-report=term:skip-covered

bench: .venv/installed
	$(BIN)/python benchmarks/run.py

storm: .venv/installed
	$(BIN)/python benchmarks/storm.py

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .import_linter_cache .coverage build dist src/*.egg-info .pytest_cache .ruff_cache .mypy_cache
