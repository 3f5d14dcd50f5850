# Everything from a bare checkout. PYTHON chooses the interpreter, VENV where its packages go.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CORE_SOURCES := $(shell find cpp cmake CMakeLists.txt -type f -not -path 'cpp/tests/*') pyproject.toml constraints.txt
# Without make's own flags: Ninja would look for a jobserver that its parents do not hand on.
BUILD_PATH := MAKEFLAGS= PATH="$(abspath $(BIN)):$$PATH"
JOBS := $(shell nproc)
# Two more than there are cores: tests of several processes, above all of a deployment, wait for some of their time.
TESTS_AT_ONCE := $(shell expr $$(nproc) + 2)
# Targets that may run at once, each with its output in one piece.
AT_ONCE := $(MAKE) --no-print-directory --jobs=2 --output-sync=target
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p no:benchmark --numprocesses $(TESTS_AT_ONCE) --dist worksteal
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# One step of the set-up, with what it is said to be.
STEP = @.ci/quietly "$(1)" "$@"
# What an extra of the package needs, beside the build.
define install_extra
@$(BIN)/python .ci/requirements.py $(1) > $@-requirements.txt
$(call STEP,Installing $(2) into $(VENV)) $(PIP) install --no-compile -c constraints.txt -r $@-requirements.txt
@touch $@
endef
CORE_BUILD := -c constraints.txt --no-build-isolation --no-deps -C build-dir=build/core \
  -C build.targets='_core;_seal_baseline;_testing' -C cmake.define.SHIELDFL_BUILD_TEST_BINDINGS=ON \
  -C cmake.define.SHIELDFL_BUILD_TESTS=ON
# Of an example in an environment of its own: the interpreter, and installing the package there, as a wheel of what is
# compiled already.
OWN_PYTHON = build/$(1)/env/bin/python
OWN_PIP = $(OWN_PYTHON) -m pip --disable-pip-version-check --quiet
LOCK = $(BIN)/uv pip compile - --quiet --no-annotate --custom-compile-command "make locks" --generate-hashes \
  --only-binary :all: --constraint constraints.txt --python-version 3.11
define install_wheel
rm -f build/$(1)/*.whl
$(BUILD_PATH) $(PIP) wheel $(CORE_BUILD) --wheel-dir build/$(1) .
$(OWN_PIP) install --no-deps --force-reinstall build/$(1)/shieldfl-*.whl
endef
# scikit-learn's digits: the clients of a round, and their training, are what noise on a sum of them takes.
DEMO := --dataset digits --alpha iid --clients 40 --min-clients 40 --rounds 5 --local-epochs 16 --batch-size 8 \
  --learning-rate 0.05 --seed 0 --threads 1 --noise-multiplier 0.01 \
  --set ddp-fedavg.target_epsilon=8 --set ddp-fedavg.clip_norm=0.5
TYPED_EXAMPLES = $(wildcard examples/programs/*.py examples/served_authority/*.py) \
  examples/chosen_share/chosen_share.py examples/grown_bias/grown_bias.py
FUZZ_ITERATIONS ?= 1000000
STATISTICS_DRAWS ?= 100000000
# Where tests say what they left out, and why.
export SHIELDFL_LEFT_OUT := $(abspath build/left-out)
# Many tests start interpreters, each of which would compile the package and torch anew where a shell forbids to keep
# what was compiled.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test check test-cpp test-avx2 cpp-tests collected test-python test-slow nvflare hugging-face test-verify test-asan \
  test-tsan test-ct test-aarch64 test-statistics fuzz smoke wheel coverage bench baselines papers docs locks lint example-types format clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/installed  ## install everything, train plain and protected on real data, and attack what the server receives
	@$(BIN)/shieldfl run --method fedavg,full-he,selective-shield,ddp-fedavg $(DEMO) --audit --report build/demo-report
	@echo "report: build/demo-report/index.html"

test:  ## install everything and run the checks
	@.ci/stage --clear
	@.ci/stage "set-up, the core compiled" $(MAKE) $(VENV)/installed
	@.ci/stage "lint, C++ tests compiled" $(AT_ONCE) lint cpp-tests collected
	@.ci/stage "C++ tests" $(MAKE) test-cpp
	@.ci/stage "Python tests" $(MAKE) test-python
	@.ci/stage --list

# What looks at pages must be there for these: `make test` leaves out what needs it where it is not.
check test-slow: export SHIELDFL_REQUIRE_BROWSER := 1
check:  ## the long form: all of the above, statistics, sanitizers, constant time, fuzzing, every experiment, wheels
	@$(MAKE) test
	@.ci/stage "slow Python tests" $(MAKE) test-slow
	@.ci/stage "C++ tests on AVX2" $(MAKE) test-avx2
	@.ci/stage "types of examples" $(MAKE) example-types
	@.ci/stage "NVFlare" $(MAKE) nvflare
	@.ci/stage "Hugging Face" $(MAKE) hugging-face
	@.ci/stage "contracts of kernels" $(MAKE) test-verify
	@.ci/stage "ASan and UBSan" $(MAKE) test-asan
	@.ci/stage "TSan, fuzz, constant time, samplers" $(AT_ONCE) test-tsan fuzz test-ct test-statistics
	@.ci/stage "C++ tests as 64-bit ARM" $(MAKE) test-aarch64
	@.ci/stage "experiments" $(MAKE) smoke
	@.ci/stage "wheels" $(MAKE) wheel
	@.ci/stage --list

cpp-tests: $(VENV)/core
	$(BUILD_PATH) cmake --build build/core

# A shard that fails prints all that it did.
# On AVX2 kernels, which are compared with those of all sets, and freed memory: the rest runs on it in `make check`.
test-cpp: cpp-tests  ## the C++ tests and a short fuzz
	$(BUILD_PATH) ctest --test-dir build/core --output-on-failure --parallel $(JOBS) --progress --exclude-regex '^avx2\.[^f]'

test-avx2: cpp-tests  ## the C++ tests that `make test-cpp` leaves out, where the machine has AVX2
	$(BUILD_PATH) ctest --test-dir build/core --output-on-failure --parallel $(JOBS) --tests-regex '^avx2\.'

test-python: $(VENV)/installed  ## the Python tests, on all cores
	$(PYTEST) -m "not slow" --durations 15

# Once, before several processes do it side by side: what torch and other packages, which are installed uncompiled, and
# the tests' own modules with their assertions compile to is kept, and the processes read it.
collected: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p no:benchmark -p no:cacheprovider -m "not slow" --collect-only -qq \
	  > build/collected || { cat build/collected; exit 1; }

test-slow: $(VENV)/simulation $(VENV)/site $(VENV)/notebooks $(VENV)/tensorboard  ## Python tests that take long: the benchmarks' targets, in small; runs in Flower's simulation; notebooks
	$(PYTEST) -m slow

# NVFlare takes the ports 8002 and 8003.
nvflare: build/nvflare/packages  ## examples/nvflare beside NVFlare's TenSEAL filters on one job, in an environment of its own
	$(call install_wheel,nvflare)
	OMP_NUM_THREADS=1 $(call OWN_PYTHON,nvflare) -m pytest -p no:cacheprovider tests/examples/test_nvflare_filters.py

hugging-face: build/hf/packages  ## examples/flower/lora_text, with transformers and PEFT in an environment of their own
	$(call install_wheel,hf)
	OMP_NUM_THREADS=1 $(call OWN_PYTHON,hf) -m pytest -p no:cacheprovider tests/flower/test_lora_text.py

test-verify: build/verify/configured  ## C++ tests, with all that they may try at random, in a build that checks the ranges and lengths that kernels rely on
	$(BUILD_PATH) cmake --build build/verify --target core_tests fuzz_frames freed_memory
	SHIELDFL_ALL_TRIALS=1 $(BUILD_PATH) ctest --test-dir build/verify --output-on-failure --parallel $(JOBS) --exclude-regex sampler_statistics

# The interpreter is not built for sanitizers, so their runtime has to be loaded before it; -S keeps the installed
# package, which has no sanitizers either, from being found first.
test-asan: build/asan/configured  ## C++ tests and native Python tests under ASan and UBSan
	cmake --build build/asan
	ctest --test-dir build/asan --output-on-failure --parallel $(JOBS)
	rm -rf build/asan/python && mkdir -p build/asan/python && cp -r python/shieldfl build/asan/python/
	cp build/asan/_core*.so build/asan/_seal_baseline*.so build/asan/_testing*.so build/asan/python/shieldfl/
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
	  PYTHONPATH="build/asan/python:$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	  $(BIN)/python -S -m pytest -p no:benchmark -p no:cacheprovider --dist worksteal \
	  --tx '$(JOBS)*popen//python=$(abspath $(BIN))/python -S' tests/encryption tests/reference

# Without address-space randomisation where that may be switched off: the sanitizer cannot work in all its layouts.
test-tsan: build/tsan/configured  ## C++ tests under ThreadSanitizer
	cmake --build build/tsan --target core_tests
	$$(setarch --addr-no-randomize true 2>/dev/null && echo setarch --addr-no-randomize) build/tsan/core_tests

# Valgrind knows no AVX-512: unset, SHIELDFL_SIMD means AVX2 to it. The trace follows the best set there is.
test-ct: build/ct/configured  ## no branch or address depends on a secret: valgrind, then a trace; two minutes
	cmake --build build/ct --target constant_time constant_time_trace
	SHIELDFL_SIMD=scalar valgrind -q --error-exitcode=1 build/ct/constant_time
	SHIELDFL_SIMD= valgrind -q --error-exitcode=1 build/ct/constant_time
	valgrind -q --log-file=build/ct/leaks.log build/ct/constant_time --leaks
	build/ct/constant_time_trace

# Emulated, so that nothing is said of time.
test-aarch64: build/aarch64/configured  ## the C++ tests compiled for 64-bit ARM, emulated: the same bits as on x86-64
	$(BUILD_PATH) cmake --build build/aarch64
	$(BUILD_PATH) ctest --test-dir build/aarch64 --output-on-failure --parallel $(JOBS)

test-statistics: $(VENV)/core  ## the samplers' distributions, from 10^8 samples each
	$(BUILD_PATH) cmake --build build/core --target sampler_statistics
	build/core/sampler_statistics $(STATISTICS_DRAWS)

fuzz: build/asan/configured  ## a million mutated frames under ASan and UBSan
	cmake --build build/asan --target fuzz_frames
	build/asan/fuzz_frames $(FUZZ_ITERATIONS)

smoke: $(VENV)/installed  ## one round of every experiment, and every fleet simulated; needs SHIELDFL_DATA
	.ci/smoke $(BIN)/shieldfl

wheel: $(VENV)/tools  ## an sdist, and a wheel for each CPython that is found, each tried on its own; in build/wheels/ready
	MAKEFLAGS= VENV="$(VENV)" JOBS="$(JOBS)" .ci/wheel

coverage: $(VENV)/installed build/coverage/configured  ## which lines the tests run, of the package and of the core
	.ci/coverage $(BIN) build/coverage

bench: $(VENV)/installed  ## microbenchmarks, with parameters in their names
	$(BIN)/python -m pytest -o python_files="bench_*.py" bench --benchmark-only

baselines: $(VENV)/installed  ## the full comparison with other libraries, and the targets; half an hour, alone
	mkdir -p build
	$(BIN)/python bench/baselines.py --json build/baselines.json
	$(BIN)/python bench/baselines.py --targets --json build/targets.json
	$(BIN)/python bench/baselines.py paillier --json build/paillier-baselines.json
	$(BIN)/python bench/baselines.py paillier --targets --json build/paillier-targets.json

# ARGUMENTS of bench/papers/run.py, such as --small, --list or --only NAME.
papers: $(VENV)/installed  ## the papers' tables that two cores can run, beside ours, into docs/explanation/papers; 8 hours by estimate; needs SHIELDFL_DATA
	$(BIN)/python bench/papers/run.py $(ARGUMENTS)

docs: $(VENV)/installed $(VENV)/site  ## the documentation as a site, in build/site
	$(BIN)/python docs/site/assemble.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site: build/site/index.html"

locks: $(VENV)/installed  ## the packages of the key authority's image, with their hashes, in examples/deploy
	$(BIN)/python .ci/requirements.py authority | $(LOCK) --output-file examples/deploy/requirements.txt
	$(BIN)/python .ci/requirements.py build-system | $(LOCK) --output-file examples/deploy/build-requirements.txt

lint: $(VENV)/installed  ## formatting, style, types
	$(BIN)/ruff check python tests bench examples
	$(BIN)/ruff format --check python tests bench examples
	$(BIN)/mypy
	MYPYPATH=python $(BIN)/mypy tests/typed_calls.py
	$(BIN)/python -m mypy.stubtest shieldfl._core shieldfl._seal_baseline --allowlist tests/stub_differences.txt \
	  --mypy-config-file tests/stub_check.ini
	$(BIN)/clang-format --dry-run --Werror $$(find cpp -name '*.h' -o -name '*.cpp')

# In `make check` alone: pyright's Node.js is a download of tens of megabytes.
example-types: $(VENV)/pyright  ## the examples' types, read by mypy (strict) and pyright as a user's programs are
	MYPYPATH=python:examples/chosen_share:examples/grown_bias $(BIN)/mypy --follow-imports silent --untyped-calls-exclude torch $(TYPED_EXAMPLES)
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: $(VENV)/installed  ## write the formatting that lint asks for
	$(BIN)/ruff format python tests bench examples
	$(BIN)/ruff check --fix python tests bench examples
	$(BIN)/clang-format -i $$(find cpp -name '*.h' -o -name '*.cpp')

clean:  ## remove what was built; the cache of SEAL stays
	rm -rf build $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks

# pip first: the interpreter's own may take a minute to choose among an index's files.
$(VENV)/tools: pyproject.toml constraints.txt
	@PYTHON="$(PYTHON)" CXX="$(CXX)" sh cmake/preflight.sh
	$(call STEP,Making $(VENV)) $(PYTHON) -m venv $(VENV)
	$(call STEP,Installing pip into $(VENV)) $(PIP) install -c constraints.txt pip
	$(call STEP,Installing what compiles into $(VENV)) $(PIP) install -c constraints.txt scikit-build-core pybind11 cmake ninja
	@touch $@

# The packages come from their archives with one core while the other compiles the core. What is imported of them is
# compiled when it is; the rest, most of it, never.
$(VENV)/installed: $(VENV)/tools $(CORE_SOURCES)
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/packages $(VENV)/core
	@touch $@

$(VENV)/packages: $(VENV)/tools
	$(call install_extra,dev,Python packages)

# Ray, which Flower's simulation runs on: 70 MB that no other test needs.
$(VENV)/simulation: $(VENV)/installed
	$(call install_extra,flower-simulation,Ray)

$(VENV)/pyright: $(VENV)/installed
	$(call install_extra,pyright,pyright)

# The kernel that notebooks run in: 80 MB that no other test needs.
$(VENV)/notebooks: $(VENV)/installed
	$(call install_extra,notebooks,a kernel of notebooks)

# What reads the event files that a run writes.
$(VENV)/tensorboard: $(VENV)/installed
	$(call install_extra,tensorboard,TensorBoard)

build/nvflare/packages: $(VENV)/core examples/nvflare/requirements.txt constraints.txt
	@$(PYTHON) -m venv --clear build/nvflare/env
	$(call STEP,Installing NVFlare into build/nvflare) \
	  $(call OWN_PIP,nvflare) install --no-compile -c constraints.txt -r examples/nvflare/requirements.txt pytest hypothesis
	@touch $@

build/hf/packages: $(VENV)/core examples/flower/lora_text/pyproject.toml constraints.txt
	@$(PYTHON) -m venv --clear build/hf/env
	@$(BIN)/python .ci/requirements.py flower > build/hf/requirements.txt
	@$(BIN)/python .ci/requirements.py '' examples/flower/lora_text/pyproject.toml >> build/hf/requirements.txt
	$(call STEP,Installing transformers and PEFT into build/hf) \
	  $(call OWN_PIP,hf) install --no-compile -c constraints.txt -r build/hf/requirements.txt pytest hypothesis
	@touch $@

$(VENV)/site: $(VENV)/tools
	$(call install_extra,docs,what builds the site)

# One build for the package and for the C++ tests: this compiles the package's part, `cpp-tests` the rest.
$(VENV)/core: $(VENV)/tools $(CORE_SOURCES)
	$(call STEP,Compiling the core; for the first time on a machine Microsoft SEAL too) \
	  env $(BUILD_PATH) $(PIP) install $(CORE_BUILD) --editable .
	@touch $@

build/asan/configured: $(VENV)/installed CMakeLists.txt $(wildcard cmake/*.cmake)
	$(BUILD_PATH) cmake -S . -B build/asan -G Ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -Dpybind11_DIR=$$($(BIN)/python -m pybind11 --cmakedir) -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DSHIELDFL_SANITIZE=address,undefined -DSHIELDFL_BUILD_TESTS=ON -DSHIELDFL_BUILD_TEST_BINDINGS=ON
	@touch $@

build/tsan/configured: $(VENV)/tools CMakeLists.txt $(wildcard cmake/*.cmake)
	$(BUILD_PATH) cmake -S . -B build/tsan -G Ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSHIELDFL_SANITIZE=thread -DSHIELDFL_BUILD_PYTHON=OFF -DSHIELDFL_BUILD_TESTS=ON
	@touch $@

build/aarch64/configured: $(VENV)/tools CMakeLists.txt $(wildcard cmake/*.cmake)
	@sh cmake/preflight_aarch64.sh
	$(BUILD_PATH) cmake -S . -B build/aarch64 -G Ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake -DSHIELDFL_BUILD_PYTHON=OFF -DSHIELDFL_BUILD_TESTS=ON
	@touch $@

build/verify/configured: $(VENV)/tools CMakeLists.txt $(wildcard cmake/*.cmake)
	$(BUILD_PATH) cmake -S . -B build/verify -G Ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -DSHIELDFL_VERIFY=ON -DSHIELDFL_BUILD_PYTHON=OFF -DSHIELDFL_BUILD_TESTS=ON
	@touch $@

build/coverage/configured: $(VENV)/installed CMakeLists.txt $(wildcard cmake/*.cmake)
	$(BUILD_PATH) cmake -S . -B build/coverage -G Ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -Dpybind11_DIR=$$($(BIN)/python -m pybind11 --cmakedir) -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_FLAGS="-O1 --coverage" -DCMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF \
	  -DSHIELDFL_BUILD_TESTS=ON -DSHIELDFL_BUILD_TEST_BINDINGS=ON
	@touch $@

build/ct/configured: $(VENV)/tools CMakeLists.txt $(wildcard cmake/*.cmake)
	$(BUILD_PATH) cmake -S . -B build/ct -G Ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -DSHIELDFL_TAINT_CHECK=ON -DSHIELDFL_BUILD_PYTHON=OFF -DSHIELDFL_BUILD_TESTS=ON
	@touch $@
