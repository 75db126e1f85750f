# Two commands do everything on a machine that has Python and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# One BLAS thread: at these sizes a second one only waits, and on a loaded machine it waits long.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export MPLBACKEND := Agg

.PHONY: demo test test-all test-lowest lint bench trust reproduce clean

# The shipped soil example, end to end; it ends with the path of a report.
demo: $(VENV)/.demo
	$(BIN)/rfkalman demo --out out/demo

# Once with NumPy and SciPy alone (the promise of `import rfkalman`), then everything.
test: $(VENV)/.bare $(VENV)/.test $(VENV)/.browser lint
	$(VENV)/bare/bin/python -W error tests/bare_import.py
	$(BIN)/python -m pytest -m "not study" -n 2 --dist worksteal --doctest-modules src tests

test-all: $(VENV)/.test lint
	$(BIN)/python -m pytest --doctest-modules src tests --studies docs/studies.md

# The lowest versions that pyproject.toml promises to work with; old packages warn about each other, so only our own
# warnings are failures.
test-lowest: $(VENV)/.lowest
	$(VENV)/lowest/bin/python -m pytest -m "not study" -n 2 --dist worksteal tests --ignore tests/test_quickstart.py \
	  -o filterwarnings=error::rfkalman.core.errors.RFKalmanWarning

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

# Twin experiments with truths that share nothing with the library: do its bands hold what they promise?
trust: $(VENV)/.test
	$(BIN)/python -m tests.trust.study

# Every numerical statement of the paper, with hundreds of seeds; the table is committed.
reproduce: $(VENV)/.test
	$(BIN)/rfkalman reproduce --out out/reproduce --table docs/reproduction.md

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) install -e ".[app]"
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(PIP) install -e ".[test]"
	@touch $@

# The report is looked at in a real browser; where none can be installed those tests say that they were skipped.
$(VENV)/.browser: | $(VENV)/bin/python
	@command -v chromium chromium-browser google-chrome >/dev/null \
	  || (echo "installing chromium for the browser tests" \
	      && (timeout 120 apt-get -qq update; timeout 600 apt-get install -y -qq --no-install-recommends chromium) \
	         >/dev/null 2>&1) \
	  || echo "chromium cannot be installed here: the browser tests will be skipped"
	@touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/bin/python
	$(PIP) install -e ".[test,bench]"
	@touch $@

$(VENV)/.bare: pyproject.toml | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/bare
	$(VENV)/bare/bin/python -m pip --disable-pip-version-check -q install -e .
	@touch $@

$(VENV)/.lowest: pyproject.toml | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/lowest
	$(BIN)/python scripts/lowest_versions.py > $(VENV)/lowest/constraints.txt
	$(VENV)/lowest/bin/python -m pip --disable-pip-version-check -q install -c $(VENV)/lowest/constraints.txt -e ".[test]"
	@touch $@

clean:
	rm -rf $(VENV) out build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
