# Every target sets up what it needs; stamp files make the second call quick.
PYTHON ?= python3
# Tests run on all cores; PYTEST_ARGS="-n 0" for one process.
PYTEST_ARGS ?= -n auto --dist worksteal

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
DEPS := $(VENV)/.stamp-deps
INSTALLED := $(VENV)/.stamp-geoattn
MODELS := $(VENV)/.stamp-models
BROWSER := $(VENV)/.stamp-browser
PEER_DEPS := .venv-grc-0.6.1/.stamp-deps

NATIVE := $(wildcard native/*.* native/*/*.*)
BUILD_INPUTS := pyproject.toml CMakeLists.txt src/geoattn/_version.py $(NATIVE)
# The editable install lists the modules there are: it is renewed when one is added, moved or removed.
FOLDERS := $(shell find src/geoattn -type d -not -name __pycache__ 2>/dev/null)
SOURCES := $(shell find src -type f -not -name '*.pyc' 2>/dev/null)

# Local copies of the data sets; the tests that need one skip without it.
ifndef GEOATTN_DATA
ifneq ($(wildcard ../shared/data),)
export GEOATTN_DATA := $(abspath ../shared/data)
endif
endif

# cmake and ninja come from the lock, not from the machine.
export PATH := $(abspath $(BIN)):$(PATH)

.DELETE_ON_ERROR:
.PHONY: help report test test-slow fuzz fuzz-atheris faults sanitize bench lint format wheel wheel-notebooks notebooks docs \
  lock install clean distclean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

report: $(INSTALLED) ## report.html on the embedded model
	@$(BIN)/geoattn report

# Chromium looks at the report. It is a package of the system: installed where that is possible, else its tests skip.
$(BROWSER):
	@mkdir -p $(@D)
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing chromium for the tests of the report"; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium chromium-driver; } \
	    >/dev/null 2>&1 || echo "chromium could not be installed: the tests of the report in a browser are skipped"; \
	else echo "no chromium, and no right to install it: the tests of the report in a browser are skipped"; fi
	@touch $@

# One thread for torch and BLAS: small matrices, and the same sums on every machine.
test: $(INSTALLED) $(MODELS) $(BROWSER) ## the tests and the examples in the docstrings
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

test-slow: $(INSTALLED) $(MODELS) $(BROWSER) ## only the slow tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

# Seeded, and resumable: build/fuzz.json has how far it came. FUZZ_MINUTES=60 before a release.
FUZZ_MINUTES ?= 6
fuzz: $(INSTALLED) ## maps, files and arguments by seed for FUZZ_MINUTES, from where the last call stopped
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.assurance.fuzz --minutes $(FUZZ_MINUTES)

# Atheris lives beside the environment: it is for Linux alone, and nothing else needs it.
TARGET ?= attention.npz
ATHERIS := .venv-fuzz/.stamp-deps
fuzz-atheris: $(INSTALLED) $(ATHERIS) ## one reader (TARGET) under Atheris for FUZZ_MINUTES
	OMP_NUM_THREADS=1 PYTHONPATH=.venv-fuzz:. $(BIN)/python tests/assurance/fuzz/with_atheris.py $(TARGET) \
	  -max_total_time=$$(($(FUZZ_MINUTES) * 60)) -rss_limit_mb=6000 -artifact_prefix=build/atheris/

$(ATHERIS): tests/assurance/fuzz/atheris.txt $(DEPS)
	@$(PIP) install --no-deps --target .venv-fuzz -r $<
	@touch $@

faults: $(INSTALLED) ## a fault at every write of every job, into tests/assurance/results/faults.json
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.assurance.fault_campaign tests/assurance/results/faults.json

# The kernel with the compiler's checks, in a copy of the package; the checks need their library before Python. Python is not
# built for the thread sanitizer, so that concurrent calls come from a program of their own.
sanitize: $(INSTALLED) ## the kernel under the address, undefined-behaviour and thread sanitizers
	$(BIN)/cmake -S . -B build/thread -G Ninja -DGEOATTN_SANITIZE=thread -DPython_EXECUTABLE=$(abspath $(BIN))/python >/dev/null
	$(BIN)/cmake --build build/thread --target concurrent_kernel
	build/thread/concurrent_kernel
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DGEOATTN_SANITIZE=memory -DPython_EXECUTABLE=$(abspath $(BIN))/python >/dev/null
	$(BIN)/cmake --build build/sanitize
	OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	  $(BIN)/python tests/curvature/sanitized.py build/sanitize

bench: $(INSTALLED) $(PEER_DEPS) ## the benchmarks, against the peers
	$(BIN)/python -m benchmarks

lint: $(DEPS) ## formatting, lint rules and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run -Werror $(filter %.hpp %.cpp,$(NATIVE))
	$(BIN)/pyright

format: $(DEPS) ## let ruff and clang-format format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(filter %.hpp %.cpp,$(NATIVE))

wheel: dist/.stamp ## build a wheel into dist/ and try it in a clean environment
	@ls dist/*.whl

wheel-notebooks: dist/.stamp ## run the notebooks that need nothing but the wheel, from the wheel alone
	tests/wheel/check_wheel.sh dist/geoattn-*.whl $(BIN)/python notebooks

notebooks: $(INSTALLED) ## execute the notebooks of the documentation anew
	$(BIN)/python docs/make_notebooks.py

docs: $(INSTALLED) ## build the documentation into site/
	$(BIN)/mkdocs build --strict

install: $(INSTALLED) ## only the set-up: .venv with everything in it

# The torch pin is exact: a looser one may bring gigabytes of CUDA libraries.
lock: ## resolve all versions anew into requirements.lock
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install -qq torch==2.13.0 scikit-build-core nanobind cmake ninja
	PATH="$(CURDIR)/.venv-lock/bin:$$PATH" .venv-lock/bin/pip install -qq --no-build-isolation torch==2.13.0 \
	  ".[graphs,robustness,hub,ray,test,docs,dev]"
	{ sed -n '/^#/p' requirements.lock; .venv-lock/bin/pip freeze --exclude geoattn | sed 's/+cpu$$//'; } > requirements.lock.new
	mv requirements.lock.new requirements.lock && rm -rf .venv-lock

clean: ## remove builds and caches
	rm -rf build dist site .pytest_cache .ruff_cache .hypothesis $(INSTALLED)
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean ## remove the environments too
	rm -rf .venv .venv-*

# --no-compile saves a third of the time: Python compiles what is imported, when it is.
$(DEPS): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("geoattn needs Python 3.11 or newer; try make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "installing the locked dependencies into $(VENV) (some minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --no-compile -r requirements.lock
	@touch $@

$(MODELS): $(DEPS) tests/packages.txt
	@$(PIP) install --no-compile --no-deps -r tests/packages.txt
	@touch $@

# Editable: Python files are read from src, the kernel is built here and only here.
$(INSTALLED): $(DEPS) $(BUILD_INPUTS) $(FOLDERS)
	@echo "building the kernel and installing geoattn"
	@$(PIP) install --no-build-isolation --no-deps -C build-dir=build/kernel --editable .
	@touch $@

# A peer with old requirements lives in an environment of its own.
.venv-grc-%/.stamp-deps: benchmarks/peers/grc-%.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check -qq install -r $<
	@mkdir -p $(@D)/source  # with its own tests, which geoattn.compat has to pass
	@$(@D)/bin/python -m pip --disable-pip-version-check -qq download --no-deps --no-binary :all: -d $(@D)/source GraphRicciCurvature==$* \
	  && tar -xzf $(@D)/source/*.tar.gz -C $(@D)/source --strip-components 1 \
	  || echo "the source of GraphRicciCurvature $* cannot be fetched: the test that runs its tests skips"
	@touch $@

dist/.stamp: $(DEPS) $(BUILD_INPUTS) $(SOURCES) tests/wheel/check_wheel.sh
	@rm -f dist/geoattn-*.whl
	@$(PIP) wheel --no-build-isolation --no-deps -C build-dir=build/kernel --wheel-dir dist .
	tests/wheel/check_wheel.sh dist/geoattn-*.whl $(BIN)/python
	@touch $@
