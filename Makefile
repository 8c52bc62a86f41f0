# Two commands do all set-up on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
RUN := .venv
DEV := .venv-test
DATA ?= data
LISTEN ?= 127.0.0.1:9092
PIP := -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run test check bench format clean
run: $(RUN)/installed  ## one broker with its data in ./data
	@echo "Ottla keeps its data in $(DATA)/ and listens on $(LISTEN). In another terminal:"
	@echo "  $(RUN)/bin/ottla topics create hello && echo '{\"value\": \"world\"}' | $(RUN)/bin/ottla produce hello --json"
	@echo "  $(RUN)/bin/ottla consume hello --from earliest"
	@exec $(RUN)/bin/ottla serve --data $(DATA) --listen $(LISTEN)

test: $(DEV)/installed  ## everything: checks, unit, simulation and interop tests
	$(DEV)/bin/python -m tests.run all

check: $(DEV)/installed  ## the daily loop: format, lint, types, contracts, unit tests, a few simulation seeds
	$(DEV)/bin/python -m tests.run check

bench: $(DEV)/bench-installed $(RUN)/installed  ## side by side with Apache Kafka (needs Java and Maven)
	$(DEV)/bin/python -m bench

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
