# Two commands do all set-up on a fresh machine: `make run` and `make test`. `make` alone lists the targets.
PYTHON ?= python3
RUN := .venv
DEV := .venv-test
FRESH := .cache/constraints-venv
DATA ?= data
DEMO ?= demo
LISTEN ?= 127.0.0.1:9092
SECONDS ?= 600
SEEDS ?= 1000
HOURS ?=
HAS_SPARK := $(RUN)/bin/python -c "import pyspark" 2>/dev/null
PIP := -m pip install --quiet --disable-pip-version-check
PIN := -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help run test check bench fuzz sim format constraints clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUN)/installed  ## the demo: one broker, and a pipeline on Spark over generated orders
	@$(HAS_SPARK) || { echo "Installing Spark, once. It is large (about 450 MB) and takes some minutes."; \
	  $(RUN)/bin/python -m pip install --disable-pip-version-check $(PIN) -e '.[spark]'; } || true
	@if $(HAS_SPARK); then exec $(RUN)/bin/ottla demo --folder $(DEMO) --listen $(LISTEN); fi; \
	echo "Spark could not be installed (see above). Starting the broker alone, with its data in $(DATA)/. Try:"; \
	echo "  $(RUN)/bin/ottla topics create hello && echo '{\"value\": \"world\"}' | $(RUN)/bin/ottla produce hello --json"; \
	echo "  $(RUN)/bin/ottla consume hello --from earliest"; \
	exec $(RUN)/bin/ottla serve --data $(DATA) --listen $(LISTEN)

check: $(DEV)/check-installed  ## the daily loop, without Spark: format, lint, types, import contracts, quick unit tests, a simulation seed
	$(DEV)/bin/python -m tests.run check

test: $(DEV)/installed  ## everything: `check` with all examples, slow tests, 100 simulated clusters, interop, pipeline, fuzzing
	$(DEV)/bin/python -m tests.run all

bench: $(DEV)/bench-installed $(RUN)/installed  ## benchmarks beside Apache Kafka (needs Java and Maven)
	$(DEV)/bin/python -m bench

fuzz: $(DEV)/check-installed  ## broken requests, batches and records for SECONDS (600 by default)
	OTTLA_FUZZ_SECONDS=$(SECONDS) $(DEV)/bin/python -m pytest -q -s -n 0 --timeout=0 tests/fuzz

sim: $(DEV)/check-installed  ## SEEDS seeds (1000 by default) of each simulated quorum under all faults, or HOURS virtual hours of clusters
ifdef HOURS
	$(DEV)/bin/python -m ottla.sim --workload cluster --hours $(HOURS)
else
	for workload in quorum voters upgrade; do \
	  $(DEV)/bin/python -m ottla.sim --workload $$workload --seeds $(SEEDS) || exit 1; \
	done
endif

format: $(DEV)/check-installed  ## format the code and fix what ruff can fix
	$(DEV)/bin/ruff format . && $(DEV)/bin/ruff check --fix .

constraints:  ## rewrite constraints.txt with the newest releases of all dependencies (use Python 3.11)
	rm -rf $(FRESH)
	$(PYTHON) -m venv $(FRESH)
	$(FRESH)/bin/python $(PIP) -e '.[test,bench]'
	{ sed -n '/^#/p' constraints.txt; $(FRESH)/bin/python -m pip freeze --exclude-editable; } > $(FRESH)/constraints.txt
	mv $(FRESH)/constraints.txt constraints.txt

$(RUN)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(RUN)
	$(RUN)/bin/python $(PIP) $(PIN) -e .
	@touch $@

$(DEV)/check-installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEV)
	$(DEV)/bin/python $(PIP) $(PIN) -e '.[check]'
	@touch $@

$(DEV)/installed: $(DEV)/check-installed
	$(DEV)/bin/python $(PIP) $(PIN) -e '.[test]'
	@touch $@

$(DEV)/bench-installed: $(DEV)/installed
	$(DEV)/bin/python $(PIP) $(PIN) -e '.[test,bench]'
	@touch $@

clean:  ## remove the environments and all caches
	rm -rf $(RUN) $(DEV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .cache
