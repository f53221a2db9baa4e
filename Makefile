# Needs Python 3.11 or newer, make and a package registry; everything else goes into .venv.

PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test soak lint can-compile fast test-fast bench gpu-check env clean

demo: .venv/base
	rm -rf runs/demo
	$(BIN)/mainspring run scenarios/demo.toml --out runs/demo

# Real models need torch and transformers; TORCH=no leaves them and their tests out.
TORCH ?= yes
test: .venv/dev $(if $(filter no,$(TORCH)),,.venv/torch)
	$(BIN)/pytest -m 'not live' --numprocesses logical
	$(BIN)/pytest -m live

# Other random worlds than yesterday, so many for each law: make soak EXAMPLES=100000
EXAMPLES ?= 20000
soak: .venv/dev
	MAINSPRING_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -o faulthandler_timeout=0 tests/properties tests/executor/test_oip_fuzz.py tests/executor/test_wire.py tests/executor/test_wrong_messages.py tests/executor/test_leaks.py

lint: .venv/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# The hot path compiled (needs a C compiler), beside the checkout, which stays what is edited.
fast: build/fast
	@echo 'PYTHONPATH=build/fast $(BIN)/mainspring run ... runs what is compiled'

can-compile:
	@$(CC) -fsyntax-only -x c -include Python.h /dev/null 2>/dev/null \
	  -I$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))') \
	  || { echo 'a C compiler and the headers of $(PYTHON) are needed to compile'; exit 1; }

# The laws of the core hold for the compiled one as well.
test-fast: build/fast
	PYTHONPATH=build/fast $(BIN)/pytest --override-ini 'pythonpath=build/fast .' --numprocesses logical tests/scheduler tests/sim tests/properties tests/fidelity

# With what is compiled too, where there is a compiler.
bench: .venv/dev
	-$(MAKE) fast
	$(BIN)/python benchmarks/run.py

# What has to be seen on a GPU once, in at most eight minutes; needs the extras executor and cuda13.
gpu-check: .venv/torch
	@$(BIN)/python benchmarks/gpu_check.py

env: .venv/dev

clean:
	rm -rf .venv build runs dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

.venv/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) --editable .
	touch $@

.venv/dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) --editable '.[dev]'
	touch .venv/base $@

.venv/torch: .venv/dev
	$(PIP_INSTALL) --editable '.[dev,executor]'
	touch $@

# From an sdist: built in the checkout, compiled modules would stay there and hide later edits.
build/fast: .venv/dev $(wildcard */*.py */*/*.py)
	@$(MAKE) --no-print-directory can-compile
	rm -rf build
	$(BIN)/hatchling build --target sdist --directory build
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	  HATCH_BUILD_HOOK_ENABLE_MYPYC=true $(PIP_INSTALL) --no-deps --target $@ build/*.tar.gz
	touch $@
