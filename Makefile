# make demo | demo-hosts | test | test-long | test-nodes | test-guest | test-wheels | test-wheel | test-endings | bench | bench-ccl |
# test-programs | test-image | bench-recovery | bench-hosts | ccl-matrix | kill-sweep | soak | lab | ops | fuzz | races | dmr-campaign | mutants | build | wheel | programs | docs | lint | clean.
# Everything is installed into .venv/ only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The folder is configured with the tests, which are compiled only where they are used.
export PYFT_MESON_OPTIONS := -Dtests=true $(PYFT_MESON_OPTIONS)
NATIVE := $(BIN)/python tools/build/native_build.py

UNIT_TESTS := tests/unit tests/gen tests/hostile
SOURCES := $(shell find pyft pyft_lab profiling proxy shim softgpu flexccl tools -type f \
             ! -path '*/__pycache__/*' ! -path 'pyft/_native/lib/*' 2>/dev/null)

.PHONY: demo races test test-long bench bench-ccl bench-recovery bench-hosts ccl-matrix dmr-campaign kill-sweep soak demo-hosts test-nodes test-guest lab ops fuzz mutants test-wheels wheel test-wheel test-endings test-programs test-image build programs docs lint format clean

demo: build
	$(BIN)/python bench/demo.py

test: programs
	tools/build/run_tests.sh $(UNIT_TESTS)

test-long: build  # tests that take longest; `make test` leaves them out
	$(BIN)/pytest -q -m long tests/e2e tests/softgpu tests/nodes tests/unit

programs: build  # tests and benchmarks are compiled, not run
	$(NATIVE) tests

bench: build
	$(NATIVE) ring_bench call_bench start_bench exec_bench
	$(BIN)/python bench/run.py

bench-ccl: build
	$(NATIVE) ccl_repair
	$(BIN)/python bench/ccl.py

bench-recovery: build
	$(BIN)/python bench/fault_leaks.py
	$(BIN)/python bench/recovery.py

bench-hosts: build  # several hosts, ten minutes; needs root and CRIU (tools/get/criu)
	$(BIN)/python bench/hosts.py

ccl-matrix: build  # every collective in every way, half an hour; some of it: make ccl-matrix CASES=50 SEED=7
	$(NATIVE) flexccl_matrix_full
	build/meson/tests/flexccl/flexccl_matrix_full $(or $(CASES),0) $(or $(SEED),1)

kill-sweep: build  # faults at many places; options: make kill-sweep SWEEP="--case gpt --rank 1 --stride 5"
	$(BIN)/python tests/sweep/run.py $(SWEEP)

soak: build  # everything at once, until the time is over; options: make soak HOURS=1 SOAK="--seed 7"
	$(BIN)/python tests/soak/soak.py --hours $(or $(HOURS),1) $(SOAK)

dmr-campaign: build  # silent faults, 1 to 2 s each; options: make dmr-campaign DMR="--trials 3000 --dtype bf16"
	$(BIN)/python bench/dmr_campaign.py $(DMR)

lab: build  # options: make lab LAB=quick.toml; results in lab-out/
	$(BIN)/pyft lab run $(or $(LAB),cpu.toml)

demo-hosts: build  # two hosts and a spare of namespaces; needs root and CRIU (tools/get/criu)
	$(BIN)/python bench/demo_hosts.py

test-nodes: build  # images and several hosts: needs the same
	PYFT_REQUIRE=nodes $(BIN)/pytest -q tests/nodes

test-guest: build  # images with pre-dumps, in a machine whose kernel tracks writes; options: GUEST="--memory-mb 8000"
	PYFT_REQUIRE=nodes,softdirty TESTS_SLOWER=20 $(BIN)/python tests/nodes/guest.py $(GUEST) \
	    $(BIN)/pytest -q -p no:cacheprovider tests/nodes/test_pre_dumped.py

ops: build  # options: make ops OPS="--dtype float16 --ops '^conv'"
	$(BIN)/python tests/ops/run.py $(OPS)

# Tests of threads: client, server, snapshots. Some 5 minutes to compile, once.
RACES := server stream_words pinned_ring peer_memory collective_marks messages standby_modules self_test job_clock \
         window_memory mapping_threads library cudnn_graph nccl_config blas_wire tensor_map ring_hold ring_log ring_hostile \
         recovery_beside recovery_background_copies recovery_share recovery_snapshot recovery_deferred
races: $(VENV)/dependencies  # C++ under the thread sanitizer, in build/tsan
	[ -f build/tsan/build.ninja ] || $(BIN)/python -m mesonbuild.mesonmain setup build/tsan --buildtype=release \
	    -Doptimization=1 -Dtests=true -Dparts=proxy -Db_sanitize=thread -Dcpp_args=-Wno-tsan
	$(BIN)/meson test -C build/tsan --timeout-multiplier 10 --print-errorlogs $(RACES)

fuzz: build  # what comes to the agent from outside; MINUTES=60, or MUTATIONS=1000000 of each input
	$(BIN)/python tests/fuzz/run.py $(if $(MUTATIONS),--mutations $(MUTATIONS),--minutes $(or $(MINUTES),60))

mutants: build  # which changes no test notices; options: make mutants MUTANTS="--every 5" SOURCES="--sample 20"
	$(BIN)/python tools/check/mutants.py $(MUTANTS)
	$(BIN)/python tools/check/source_mutants.py $(SOURCES)

wheel: $(VENV)/dependencies  # a manylinux wheel for every Python, in build/wheel
	$(BIN)/python -m pip install --quiet -r tools/build/wheel-requirements.txt
	$(BIN)/python tools/build/wheel.py

test-wheel: wheel  # installs it where there is nothing but PyTorch; other Pythons: PYTHONS="python3.10 ..."
	$(BIN)/python tests/wheels/install.py $(PYTHONS)

test-endings: build  # ways to end, with servers as without; options: ENDINGS="--only late"
	$(BIN)/python tests/endings/run.py $(ENDINGS)

test-programs: build  # other people's frameworks, with faults; options: PROGRAMS="--only tp,vae"
	$(BIN)/python tests/programs/run.py $(PROGRAMS)

test-image: $(VENV)/dependencies  # the steps of the Dockerfile; needs root; options: IMAGE="--wheel FILE"
	$(BIN)/python tests/image/run.py $(IMAGE)

test-wheels: build  # options: make test-wheels WHEELS="2.10.0 --delete"
	$(BIN)/python tests/wheels/run.py $(WHEELS)

build: $(VENV)/installed

lint: $(VENV)/dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check/terms.py
	$(BIN)/python tools/check/links.py
	$(BIN)/python tools/check/layering.py
	$(BIN)/python tools/check/settings.py
	$(BIN)/python tools/check/offsets.py
	$(BIN)/python tools/check/unique_tests.py
	$(BIN)/python tools/check/imported_names.py
	git ls-files '*.cc' '*.h' '*.c' | xargs $(BIN)/clang-format --dry-run --Werror
	$(MAKE) --no-print-directory docs

# Of mkdocs-material: the banner about another program is left out.
docs: $(VENV)/dependencies  # the site, in site/; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

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
	$(BIN)/python -m pip install -r requirements-dev.txt
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "make: [$(PYTHON)] is missing or older than 3.10: set PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "make: [$(PYTHON)] cannot make virtual environments: install the package python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
