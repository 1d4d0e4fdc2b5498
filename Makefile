# make demo | test | bench | bench-ccl | bench-recovery | ccl-matrix | kill-sweep | ops | test-wheels | build | programs | lint | clean. Everything is installed into .venv/ only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The folder is configured with the tests, which are compiled only where they are used.
export PYFT_MESON_OPTIONS := -Dtests=true $(PYFT_MESON_OPTIONS)
NATIVE := $(BIN)/python tools/build/native_build.py

UNIT_TESTS := tests/unit tests/gen
SOURCES := $(shell find pyft proxy shim softgpu flexccl tools -type f \
             ! -path '*/__pycache__/*' ! -path 'pyft/_native/lib/*' 2>/dev/null)

.PHONY: demo test bench bench-ccl bench-recovery ccl-matrix kill-sweep ops test-wheels build programs lint format clean

demo: build
	$(BIN)/python bench/demo.py

test: programs
	$(BIN)/meson test -C build/meson --print-errorlogs
	@# Not `python -m pytest`, which would import the source tree. The unit tests compute, the others
	@# wait for processes a third of their time: so those run in the time that these leave.
	nice -n 19 $(BIN)/pytest -q -rs $(UNIT_TESTS) > build/unit-tests.log 2>&1 & unit=$$!; \
	$(BIN)/pytest -q -rs tests $(UNIT_TESTS:%=--ignore=%); status=$$?; \
	wait $$unit || status=$$?; cat build/unit-tests.log; exit $$status
	$(MAKE) --no-print-directory lint

programs: build  # tests and benchmarks are compiled, not run
	$(NATIVE) tests

bench: build
	$(NATIVE) ring_bench call_bench start_bench exec_bench
	$(BIN)/python bench/run.py

bench-ccl: build
	$(NATIVE) ccl_repair
	$(BIN)/python bench/ccl.py

bench-recovery: build
	$(BIN)/python bench/recovery.py

ccl-matrix: build  # every collective in every way, half an hour; some of it: make ccl-matrix CASES=50 SEED=7
	$(NATIVE) flexccl_matrix_full
	build/meson/tests/flexccl/flexccl_matrix_full $(or $(CASES),0) $(or $(SEED),1)

kill-sweep: build  # faults at many places; options: make kill-sweep SWEEP="--case gpt --rank 1 --stride 5"
	$(BIN)/python tests/sweep/run.py $(SWEEP)

ops: build  # options: make ops OPS="--dtype float16 --ops '^conv'"
	$(BIN)/python tests/ops/run.py $(OPS)

test-wheels: build  # options: make test-wheels WHEELS="2.10.0 --delete"
	$(BIN)/python tests/wheels/run.py $(WHEELS)

build: $(VENV)/installed

lint: $(VENV)/dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	git ls-files '*.cc' '*.h' '*.c' | xargs $(BIN)/clang-format --dry-run --Werror

format: $(VENV)/dependencies
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	git ls-files '*.cc' '*.h' '*.c' | xargs $(BIN)/clang-format -i

clean:
	rm -rf build *.egg-info $(VENV)/installed

$(VENV)/installed: $(VENV)/dependencies $(SOURCES) setup.py pyproject.toml meson.build meson.options
	@command -v c++ >/dev/null || { echo "make: no C++ compiler [c++]: install the package g++" >&2; exit 1; }
	@# Before pip, which would keep silent for all of it.
	$(NATIVE) product
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --force-reinstall .
	@touch $@

$(VENV)/dependencies: requirements-dev.txt $(BIN)/python
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "make: [$(PYTHON)] is missing or older than 3.10: set PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "make: [$(PYTHON)] cannot make virtual environments: install the package python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
