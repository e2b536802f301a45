# make demo: set everything up, and show one connection through two simulated data paths.
# make setup: a virtual environment in .venv, with the packages of requirements.lock.
# make lint: set everything up, and run ruff, and mypy --strict on the host driver.
# make test: set everything up, and run the tests that a change needs.
# make test-changed: the same with only those that the changes since the last commit concern, and of these the nearest,
#                    for some 5 minutes; SINCE names another commit, WITHIN other minutes.
# make test-needs-system: set everything up, and run the tests that need packages which README.md does not name.
# make test-long: the same as `make test` with every size, seed and width, which takes some times as long.
# make first: set everything up, and do what docs/first.md says for each reader, from an empty environment.
# make costs: set everything up, run the tests with an empty cache, and put into docs/testing.md where the time went.
# make prove: set everything up, and prove what the RTL must never do; ARGS=--sample: each property once.
# make soak: set everything up, and try random cases for an hour: a million startup frames and streams of FPDUs, a million
#            Ethernet frames for the twin and 100,000 for RTL, the MAC, the RDMA engine, and whole boards. SOAK has
#            options, such as SOAK="rdma --count 100".
# make coverage: set everything up, run what collects functional coverage, and put its table into docs/testing.md.
# make mutate: set everything up, and try tests and proofs on 500 mutants of the RTL; ARGS=--sample: a few, in minutes.
# make interop: set everything up, and run against the Linux kernel's own iWARP driver; needs Debian, QEMU and tshark.
#               A SoC of LiteX with an RNIC is last, opposite the twin.
# make interop-short: the same with one case of each kind in each role with each device, as CI does.
# make interop-boards: the same with the tops of two boards, with and without loss: all programs of Linux; some 15 minutes.
# make boards: set everything up, build the bitstreams of all boards, and put what came of it into docs/boards.md.
# make docs: set everything up, and write the pages of registers, the pictures, and the tables of clocks and of RGMII.
# make man: set everything up, and write manual pages into build/man.
# make site: set everything up, and make the pages of docs a site in build/site.
# make lock: write requirements.lock; needs pip-tools.
# make types: link the folders into build/types for type checkers and editors, which `make setup` does, too.
# make clean: delete all that was made, and empty the user's cache.
# make help: show these lines.
# All but the last four check first for what only the system can give.

# Python keeps the bytecode of modules: tests start some thousand processes, which would compile them again each.
unexport PYTHONDONTWRITEBYTECODE
# Amaranth adds clock domains in the order of a set: with a fixed order, a design has one key in all processes.
export PYTHONHASHSEED := 0

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests of a file need the same simulations: two workers would wait for each other's builds. Some tests wait for a clock,
# so one worker more than there are processors keeps these busy.
ALL_CORES := -n $(shell expr $$(nproc) + 1) --dist loadfile --no-loadscope-reorder
PROGRAMS := --case rping --case rdma_ --case ucmatose --case rcopy --case bw --case many --case memory
FOLDERS := rtl host_driver boards cocotb_tests
# Tools that are compiled when they run first, into a cache of the user. If two of a kind did so at once, the one would
# read what the other has not written yet, and crash.
COMPILED := yosys nextpnr-ecp5 nextpnr-ice40 nextpnr-himbaechel-gowin boolector

# For type checkers and editors, a folder of links is in Python's path. Python itself finds the package in the checkout: at
# that place of its path, too, it asks the hook of the editable installation.
LINKS := $(CURDIR)/build/types
ASK_HOOK := sys.path_importer_cache["$(LINKS)"] = next((each for each in sys.meta_path \
  if getattr(each, "__module__", "").startswith("__editable___open_rnic")), None)

.PHONY: demo help test test-changed test-needs-system test-long first costs prove soak mutate coverage interop interop-short interop-boards boards setup lint types lock docs man site clean system

demo: setup
	$(BIN)/rnic demo

help:
	@sed -n '/^$$/q; /^# make /,$$s/^# //p' Makefile

test: setup
	$(BIN)/pytest $(ALL_CORES)

test-changed: setup
	$(BIN)/pytest $(ALL_CORES) --changed=$(or $(SINCE),HEAD) --within=$(or $(WITHIN),5)

test-needs-system: setup
	$(BIN)/pytest $(ALL_CORES) -m needs_system

test-long: setup
	$(BIN)/pytest $(ALL_CORES) --long

first: setup
	$(BIN)/pytest -n 3 --long cocotb_tests/docs/test_first.py

costs: setup
	rm -rf build/cache
	OPEN_RNIC_CACHE=$(CURDIR)/build/cache $(BIN)/pytest $(ALL_CORES)
	$(BIN)/python -m open_rnic.cocotb_tests.plugins.costs --markdown docs/testing.md
	rm -rf build/cache

prove: setup
	$(BIN)/python -m open_rnic.cocotb_tests.proofs $(ARGS)

soak: setup
	$(BIN)/python -m open_rnic.cocotb_tests.soaks $(SOAK)

coverage: setup
	$(BIN)/pytest -n auto cocotb_tests/system/test_coverage.py
	$(BIN)/python -m open_rnic.cocotb_tests.coverage docs/testing.md

mutate: setup
	$(BIN)/python -m open_rnic.cocotb_tests.mutation $(ARGS)

interop-short: CHOICE := --one-of-each
interop: SDRAM := sdram-all:0 sdram-all:0.01
interop-short: SDRAM := sdram-from:0.01
interop interop-short: setup
	$(BIN)/rnic interop linux -v $(CHOICE)
	$(BIN)/rnic interop linux -v $(CHOICE) --device udp:sim:ecpix5:4 --drop 0.01 $(PROGRAMS) --case samples-to-guest
	$(BIN)/rnic interop linux -v $(CHOICE) --device udp:sim:ecpix5 --drop 0.01 --case rdma_ --case samples
	for each in $(SDRAM); do \
	$(BIN)/rnic interop linux -v --device udp:sim:colorlight_5a75b:sdram --case $${each%:*} --drop $${each#*:} || exit 1; done
	$(if $(CHOICE),,$(BIN)/pytest --long cocotb_tests/boards/test_litex.py -k moves_1_mib)

interop-boards: setup
	for board in colorlight_5a75b:4 ecpix5:4; do for drop in 0 0.01; do \
	$(BIN)/rnic interop linux -v --device udp:sim:$$board --drop $$drop $(PROGRAMS) || exit 1; done; done
	for board in ecpix5 ecpix5:4; do for drop in 0 0.01; do \
	$(BIN)/rnic interop linux -v --device udp:sim:$$board --drop $$drop --case samples || exit 1; done; done

# One at a time: each takes minutes, and a gigabyte. A board whose vendor's tool is missing is left out, and said.
boards: setup
	for core in rnic mpa; do \
	for board in $$($(BIN)/rnic boards --names --core $$core); do \
	$(BIN)/rnic build $$board --core $$core || [ $$board = arty_a7 ] || exit 1; done; \
	$(BIN)/rnic boards --markdown --core $$core > build/boards.md; \
	sed -i -e "/^<!-- $$core -->/,/^<!-- end -->/{//!d}" -e "/^<!-- $$core -->/r build/boards.md" docs/boards.md; \
	done

setup: $(VENV)/done
	@for folder in $(VENV)/lib/python*/site-packages; do test -e "$$folder/open_rnic_types.pth" || \
	printf '%s\n' '$(LINKS)' 'import sys; $(ASK_HOOK)' > "$$folder/open_rnic_types.pth"; done

lint: setup
	$(BIN)/ruff check
	$(BIN)/mypy

# The folders under the name that they are installed under, for type checkers and editors, which read files and import
# nothing.
types:
	@mkdir -p build/types/open_rnic
	@ln -sfn $(addprefix $(CURDIR)/,$(FOLDERS) host_driver/start/__init__.py host_driver/start/py.typed) build/types/open_rnic

# The packages are exactly those of the lock, and all of those, so nothing is left for pip to find out.
# cocotb-bus names scapy too, which only its Ethernet models use: it is not in the lock, and not installed.
$(VENV)/done: requirements.lock pyproject.toml setup.py | system types
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	for tool in $(COMPILED); do $(BIN)/yowasp-$$tool --version >/dev/null || exit 1; done
	@$(BIN)/python -c 'import find_libpython, sys; sys.exit(not find_libpython.find_libpython())' || \
	{ echo "Python's shared library is missing: install the Debian package libpython3-dev" >&2; exit 1; }
	touch $@

system:
	@need() { command -v "$$1" >/dev/null || { echo "$$1 is missing: install the Debian package $$2" >&2; exit 1; }; }; \
	need c++ g++; need $(PYTHON) python3
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	{ echo "Python's venv is missing: install the Debian package python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "$(PYTHON) is older than 3.11: install the Debian package python3.11, or set PYTHON" >&2; exit 1; }

# Needs pip-tools, on the oldest Python that must do: 3.11.2, Debian 12's. The lock has no addresses, so any index can
# serve it.
lock:
	pip-compile --quiet --strip-extras --extra dev --generate-hashes --unsafe-package scapy --unsafe-package open-rnic \
	  --no-annotate --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements.lock pyproject.toml
	sed -i '/^#/d' requirements.lock

docs: setup
	$(BIN)/rnic registers --markdown > docs/registers.md
	$(BIN)/rnic registers --page tcp --markdown > docs/tcp-registers.md
	$(BIN)/rnic registers --page mac --markdown > docs/mac-registers.md
	$(BIN)/rnic registers --page rdma --markdown > docs/rdma-registers.md
	$(BIN)/rnic registers --page samples --markdown > docs/sample-registers.md
	$(BIN)/rnic registers --page signal --markdown > docs/signal-registers.md
	$(BIN)/rnic registers --page rnic --markdown > docs/rnic-registers.md
	$(BIN)/rnic registers --page streams --markdown > docs/stream-registers.md
	$(BIN)/python docs/pictures
	$(BIN)/rnic crossings arty_a7 colorlight_i5 ecpix5 --markdown > build/clocks.md
	sed -i -e '/^<!-- rnic crossings -->/,/^<!-- end -->/{//!d}' -e '/^<!-- rnic crossings -->/r build/clocks.md' docs/clocks.md
	$(BIN)/rnic crossings colorlight_i5 ecpix5 versa_ecp5 --memory sdram --markdown > build/clocks.md
	sed -n '/^| from/,$$p' build/clocks.md | grep -e '^| from' -e '^|---' -e sdram > build/sdram.md
	sed -i -e '/^<!-- rnic crossings sdram -->/,/^<!-- end -->/{//!d}' -e '/^<!-- rnic crossings sdram -->/r build/sdram.md' docs/clocks.md
	$(BIN)/rnic margins --markdown > build/margins.md
	sed -i -e '/^<!-- rnic margins -->/,/^<!-- end -->/{//!d}' -e '/^<!-- rnic margins -->/r build/margins.md' docs/clocks.md

man: setup
	$(BIN)/rnic man build/man/man1

# Without network; a warning, as of a link that leads nowhere, is an error: not with --quiet, which hides warnings from
# --strict.
site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The kinds are those of host_driver/builds/cache.py. Nothing else in that folder is ours, wherever it lies.
clean:
	rm -rf build $(VENV)
	cache="$${OPEN_RNIC_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/open-rnic}"; \
	for kind in designs mutants proofs simulations; do rm -rf "$$cache/$$kind"; done
