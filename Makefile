# Each command does all its own set-up, in .venv/ (scripts/setup.py); Python 3.11 or newer and make are enough.
PYTHON ?= python3
WORKERS ?= 2
MINUTES ?= 10
RECORDS := $(sort $(wildcard benchmarks/results/*.jsonl))

BIN := .venv/bin
READY := .venv/ready
# What the demo alone needs, which is less.
READY_DEMO := .venv/ready-demo
NATIVE := src/longstride/runtime/native
# One thread per worker: test models are tiny and threads would only get in each other's way.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
# Property tests draw the same examples every time (tests/conftest.py); HYPOTHESIS_PROFILE=default draws at random.
HYPOTHESIS_PROFILE ?= ci
export HYPOTHESIS_PROFILE
# Compiled modules are kept, also where the environment forbids it (images of containers do): the commands that tests
# start, and the second worker, would compile all of the package and of the tests once more.
export PYTHONDONTWRITEBYTECODE :=

# In words that every Python understands; the script itself needs a newer one to be read at all.
NEW_ENOUGH := import sys; sys.version_info >= (3, 11) or sys.exit("set-up: Python 3.11 or newer is needed, found %s; \
name one: make PYTHON=python3.12 ..." % sys.version.split()[0])

SECONDS_EACH ?= 60
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
AT_WORK := If it rains tomorrow, we will stay at home and read.
SERVED ?= -m bundled --runtime native

.PHONY: help demo test test-cluster load fuzz fuzz-api fuzz-exactness soak check check-types check-rest report docs reference at-work dist format native native-asan clean
.DEFAULT_GOAL := help

help:
	@echo "make demo     translate with the bundled model, by every decoder it has"
	@echo "make test     run the tests"
	@echo "make fuzz     throw random options, folders and bytes at every command (MINUTES=10, SEED=)"
	@echo "make fuzz-api throw what its description allows, and what not, at a server (MINUTES=10, SEED=)"
	@echo "make fuzz-exactness  drafting decoders against those that do not, under random limits (MINUTES=10, SEED=)"
	@echo "make soak     attack a server, and ask it honestly beside that (MINUTES=10)"
	@echo "make test-cluster  the tests that need Ray, which is installed first (600 MB)"
	@echo "make load     ask a server on this machine for more than it can do (SECONDS_EACH=60, SERVED='-m bundled ...')"
	@echo "make check    lint, format, types, import contracts, generated pages, the site"
	@echo "make report   render every table and plot from benchmarks/results/"
	@echo "make docs     the documentation as a site, in build/site/"
	@echo "make reference  write the pages of commands and options from the code"
	@echo "make at-work  draw the pictures of decoders at work by the bundled model"
	@echo "make dist     build the source distribution and the wheel, in dist/"
	@echo "make format   reformat the code"
	@echo "make native   compile the native runtime again"
	@echo "make native-asan  run its tests in a build that AddressSanitizer watches"
	@echo "make clean    remove caches and build products (.venv/ stays)"

$(READY) $(READY_DEMO): pyproject.toml constraints.txt scripts/setup.py setup.py $(NATIVE)/building.py $(wildcard $(NATIVE)/source/*)
	@$(PYTHON) -c '$(NEW_ENOUGH)'
	@GOAL="$(MAKECMDGOALS)" $(PYTHON) scripts/setup.py $(@F)

# One after the other where both are asked for.
$(READY): | $(if $(filter demo,$(MAKECMDGOALS)),$(READY_DEMO))

demo: $(READY_DEMO)
	@$(BIN)/longstride demo

test: $(READY)
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations 40 --durations-min 2

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --workers $(WORKERS) $(if $(SEED),--seed $(SEED)) $(if $(CASE),--case $(CASE))

test-cluster: $(READY)
	$(BIN)/python -m pip install -q --constraint .venv/constraints.txt --no-build-isolation -e '.[cluster]'
	$(ONE_THREAD) $(BIN)/python -m pytest -n 0 tests/bulk

fuzz-api: $(READY)
	$(BIN)/python -m pip install -q --constraint .venv/constraints.txt schemathesis
	$(BIN)/python -m tests.fuzz.api --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

fuzz-exactness: $(READY)
	$(BIN)/python -m tests.fuzz.exactness --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(CASE),--case $(CASE))

soak: $(READY)
	$(BIN)/python -m tests.fuzz.soak --minutes $(MINUTES)

load: $(READY)
	$(BIN)/python benchmarks/serving_load.py --seconds $(SECONDS_EACH) -- $(BIN)/longstride serve $(SERVED) --port {port}

# Types take longer than all the rest: beside it.
check: $(READY)
	@$(MAKE) --no-print-directory -j2 check-types check-rest

check-types:
	$(BIN)/mypy

check-rest:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
ifneq ($(RECORDS),)
	$(BIN)/longstride report --check $(RECORDS) -o docs
endif
	$(BIN)/python scripts/readme_picture.py --check
	$(BIN)/python scripts/reference.py --check
	$(MKDOCS) build --strict --quiet

report: $(READY)
	$(BIN)/longstride report $(RECORDS) -o docs
	$(BIN)/python scripts/readme_picture.py

docs: $(READY)
	$(MKDOCS) build --strict
	@echo "The site: build/site/index.html"

reference: $(READY)
	$(BIN)/python scripts/reference.py

at-work: $(READY)
	mkdir -p build
	for decoder in blockwise draft-verify interleaved; do \
	    echo '$(AT_WORK)' | $(BIN)/longstride translate --decoder $$decoder --trace build/trace.jsonl && \
	    $(BIN)/python scripts/at_work.py build/trace.jsonl docs/at-work/$$decoder.svg || exit 1; done
	echo '$(AT_WORK)' | $(BIN)/longstride lattice inspect --words 5 --svg docs/at-work/lattice.svg > /dev/null

# The wheel is built from the source distribution, so that what is missing there is missed here.
dist: $(READY)
	rm -rf dist
	$(BIN)/python -c "import setuptools.build_meta as backend; backend.build_sdist('dist')"
	$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w dist dist/*.tar.gz
	@ls -l dist

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

native:
	@$(PYTHON) scripts/setup.py native

native-asan: $(READY)
	$(ONE_THREAD) $(BIN)/python scripts/native_asan.py

clean:
	rm -rf build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
