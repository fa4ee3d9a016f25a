# Each target sets itself up; a second run starts at once. Needs python3 (3.11 or newer) and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
PEERS := benchmarks/peers/requirements

ifeq ($(sort $(MAKECMDGOALS)),check test)  # both at once: types are checked while tests wait
MAKEFLAGS += --jobs=2
endif

.PHONY: demo test check gpu slow bench-peers clean

demo: $(READY)  ## train a small model on the embedded corpus and translate with it
	$(BIN)/repose demo --out runs/demo

test: $(READY)  ## the whole default test suite
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2

check: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

gpu: $(READY)  ## what needs a GPU
	$(BIN)/python -m pytest -m gpu

slow: $(READY)  ## trainings of minutes
	$(BIN)/python -m pytest -m slow

bench-peers: $(READY) $(patsubst $(PEERS)/%.txt,.venv-peers/%/ready,$(wildcard $(PEERS)/*.txt))  ## what benchmarks/ compares with

.venv-peers/%/ready: $(PEERS)/%.txt constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

clean:
	rm -rf .venv build src/*.egg-info

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[all,dev]'
	touch $@
