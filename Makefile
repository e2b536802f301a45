# make demo: set everything up, and show one connection through two simulated data paths.
# make test: set everything up, and run all tests.
# make prove: set everything up, and prove what the RTL must never do.
# make mutate: set everything up, and try tests and proofs on 500 mutants of the RTL; ARGS=--sample: a few, in minutes.
# make interop: set everything up, and run against the Linux kernel's own iWARP driver; needs Debian, QEMU and tshark.
# make boards: set everything up, build the bitstreams of all boards, and put what came of it into docs/boards.md.
# All check first for what only the system can give.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FOLDERS := rtl host_driver boards cocotb_tests

.PHONY: demo test prove mutate interop boards setup lint lock docs clean system

demo: setup
	$(BIN)/rnic demo

test: setup
	$(BIN)/pytest -n auto --dist worksteal

prove: setup
	$(BIN)/python -m open_rnic.cocotb_tests.proofs

mutate: setup
	$(BIN)/python -m open_rnic.cocotb_tests.mutation $(ARGS)

interop: setup
	$(BIN)/rnic interop linux -v

# One at a time: each takes minutes, and a gigabyte. A board whose vendor's tool is missing is left out, and said.
boards: setup
	for board in $$($(BIN)/rnic boards --names); do $(BIN)/rnic build $$board || [ $$board = arty_a7 ] || exit 1; done
	$(BIN)/rnic boards --markdown > build/boards.md
	sed -i -e '/^<!-- table -->/,/^<!-- end -->/{//!d}' -e '/^<!-- table -->/r build/boards.md' docs/boards.md

setup: $(VENV)/done

lint: setup
	$(BIN)/ruff check
	mkdir -p build/types/open_rnic
	ln -sfn $(addprefix $(CURDIR)/,$(FOLDERS)) build/types/open_rnic
	$(BIN)/mypy

# The packages are exactly those of the lock, and all of those, so nothing is left for pip to find out.
# cocotb-bus names scapy too, which only its Ethernet models use: it is not in the lock, and not installed.
$(VENV)/done: requirements.lock pyproject.toml | system
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

system:
	@need() { command -v "$$1" >/dev/null || { echo "$$1 is missing: install the Debian package $$2" >&2; exit 1; }; }; \
	need c++ g++; need perl perl; need $(PYTHON) python3
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	{ echo "Python's venv is missing: install the Debian package python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "$(PYTHON) is older than 3.11: install the Debian package python3.11, or set PYTHON" >&2; exit 1; }

# Needs pip-tools. The lock has no addresses, so any index can serve it.
lock:
	pip-compile --quiet --strip-extras --extra bench --extra dev --generate-hashes --unsafe-package scapy --no-annotate --no-header \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements.lock pyproject.toml
	sed -i '/^#/d' requirements.lock

docs: setup
	$(BIN)/rnic registers --markdown > docs/registers.md

clean:
	rm -rf build $(VENV)
