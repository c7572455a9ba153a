# Two commands do everything on a fresh machine: `make demo` and `make test`. Both install into .venv with pip.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test test-all lint bench clean

demo: $(VENV)/.demo
	$(BIN)/kronfield demo --output demo

# Two halves at once, one thread of linear algebra each: commands, experiments and what runs as a whole, and all the rest.
# Bytecode is kept, whatever the environment says: each process that a test starts would compile the package again.
JOBS := tests/cli tests/experiments tests/signals tests/test_docs.py tests/test_benchmarks.py tests/field tests/interop tests/analysis

test: lint
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || \
	  echo "There is no chromium: the tests of the playground in a browser are skipped."
	@export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=; \
	$(BIN)/python -m pytest $(JOBS) > $(VENV)/jobs.log 2>&1 & jobs=$$!; \
	$(BIN)/python -m pytest $(foreach name,$(JOBS),--ignore=$(name)); rest=$$?; \
	wait $$jobs; status=$$?; cat $(VENV)/jobs.log; \
	test $$rest -eq 0 -a $$status -eq 0

# With the tests that take minutes: a picture of 100 million pixels, every decision changed.
test-all: export KRONFIELD_LONG_TESTS = 1
test-all: test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.tuning.mutate

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# At most 20 minutes on 2 cores; BENCH=full for more, PHOTOGRAPHS=folder for other pictures.
bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks --size $(or $(BENCH),quick) $(if $(PHOTOGRAPHS),--photographs $(PHOTOGRAPHS))

clean:
	rm -rf $(VENV) demo bench build dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[images,plots]'
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[test]'
	@touch $@

# A peer that does not install is reported by the benchmark, and stops nothing.
PEERS := csaps scikit-learn gpytorch PyWavelets airportsdata statsmodels vega_datasets PyKrige verde

$(VENV)/.bench: $(VENV)/.test
	@all=yes; for peer in $(PEERS); do \
	  $(PIP) $$peer || { all=no; echo "$$peer could not be installed: its rows will say so"; }; done; \
	if test $$all = yes; then touch $@; fi
