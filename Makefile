# Two commands do all set-up on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
RUN := .venv
DEV := .venv-test
DATA ?= data
DEMO ?= demo
LISTEN ?= 127.0.0.1:9092
SECONDS ?= 600
HAS_SPARK := $(RUN)/bin/python -c "import pyspark" 2>/dev/null
PIP := -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run test check bench fuzz format clean
run: $(RUN)/installed  ## the tour: one broker, and a pipeline on Spark over orders that keep coming
	@$(HAS_SPARK) || { echo "Installing Spark, once. It is large (about 450 MB) and takes some minutes."; \
	  $(RUN)/bin/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[spark]'; } || true
	@if $(HAS_SPARK); then exec $(RUN)/bin/ottla demo --folder $(DEMO) --listen $(LISTEN); fi; \
	echo "Spark could not be installed (see above), so here is the broker alone, with its data in $(DATA)/. Try:"; \
	echo "  $(RUN)/bin/ottla topics create hello && echo '{\"value\": \"world\"}' | $(RUN)/bin/ottla produce hello --json"; \
	echo "  $(RUN)/bin/ottla consume hello --from earliest"; \
	exec $(RUN)/bin/ottla serve --data $(DATA) --listen $(LISTEN)

test: $(DEV)/installed  ## everything: checks, unit, simulation and interop tests
	$(DEV)/bin/python -m tests.run all

check: $(DEV)/installed  ## the daily loop: format, lint, types, contracts, unit tests, a few simulation seeds
	$(DEV)/bin/python -m tests.run check

bench: $(DEV)/bench-installed $(RUN)/installed  ## side by side with Apache Kafka (needs Java and Maven)
	$(DEV)/bin/python -m bench

fuzz: $(DEV)/installed  ## broken requests, batches and records for SECONDS (600 by default)
	OTTLA_FUZZ_SECONDS=$(SECONDS) $(DEV)/bin/python -m pytest -q -s -n 0 --timeout=0 tests/fuzz

format: $(DEV)/installed
	$(DEV)/bin/ruff format . && $(DEV)/bin/ruff check --fix .

$(RUN)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(RUN)
	$(RUN)/bin/python $(PIP) -e .
	@touch $@

$(DEV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEV)
	$(DEV)/bin/python $(PIP) -e '.[test]'
	@touch $@

$(DEV)/bench-installed: $(DEV)/installed
	$(DEV)/bin/python $(PIP) -e '.[test,bench]'
	@touch $@

clean:
	rm -rf $(RUN) $(DEV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .cache
