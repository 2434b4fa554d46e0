# Two commands do everything on a fresh machine: `make demo` and `make test`. The rest is for those who stay.
# What needs root (network namespaces, BPF) is run by sudo; cargo itself is not.

CARGO ?= cargo
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo -E,)
AS_ROOT := $(if $(SUDO),--config "target.'cfg(all())'.runner='$(SUDO)'",)
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Options of the demo, for instance: make demo DEMO="--seconds 60 --policy RR"
DEMO ?=

# Packets of `make fuzz`, and options of anabranch-fuzz: make fuzz FUZZ_PACKETS=100000 FUZZ="--seed 7"
FUZZ_PACKETS ?= 10000000
FUZZ ?=

# What `make bench-against` compares with, how often (`make bench-service`, too), and which rows: make bench-against REV=HEAD~1 ROWS="packets program"
REV ?= HEAD~1
PAIRS ?= 15
ROWS ?=

# Of `make bench-routes`.
ROUTES ?= 1000000

# Folders whose C is held to .clang-format.
C_FORMATTED := bpf crates

.PHONY: demo test lint advisories test-kernel verifier bench bench-service bench-against bench-routes bench-sim fuzz build setup setup-checks setup-rivals \
	setup-emulator

demo: build
	$(SUDO) $(TARGET)/release/anabranch-lab demo $(DEMO)

test: lint
	$(CARGO) test --locked --workspace $(AS_ROOT)

lint: setup-checks
	$(CARGO) fmt --all --check
	scripts/check-c $(C_FORMATTED)
	scripts/tool cargo-machete crates
	scripts/tool cargo-deny --locked check --hide-inclusion-graph bans licenses sources
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

# What is known against the dependencies: not part of `test`, which must not fail because of today's news.
advisories: setup-checks
	scripts/check-advisories

# On the oldest kernel that is supported, emulated.
test-kernel: setup-emulator
	CARGO='$(CARGO)' scripts/test-kernel

# Notes what the verifier makes of the programs, here and on the oldest kernel.
verifier: setup-emulator
	{ $(CARGO) test --locked -q --workspace --test verifier $(AS_ROOT) -- --measure && \
	  CARGO='$(CARGO)' scripts/test-kernel --measure; } | scripts/note-verifier crates/dataplane/verifier.tsv

bench: build
	$(CARGO) build --locked --release -p anabranch-bench
	$(SUDO) $(TARGET)/release/anabranch-bench

# Services beside nftables, HAProxy and nginx.
bench-service: build setup-rivals
	$(CARGO) build --locked --release -p anabranch-bench
	$(SUDO) $(TARGET)/release/anabranch-bench service --pairs $(PAIRS)

# Beside a former commit.
bench-against: setup
	CARGO='$(CARGO)' SUDO='$(SUDO)' scripts/bench-against $(REV) --pairs $(PAIRS) $(addprefix --only ,$(ROWS))

# What a table of routes costs that never rests.
bench-routes: setup
	$(CARGO) build --locked --release --workspace --example daemon
	ANABRANCH_ROUTES=$(ROUTES) $(CARGO) test --locked --release --workspace --test gateway $(AS_ROOT) -- --nocapture scale

# Beside ns-2 and ns-3 where they are installed: apt install ns2 libns3-dev
bench-sim: setup
	$(CARGO) build --locked --release -p anabranch-bench --bin anabranch-bench-sim
	$(TARGET)/release/anabranch-bench-sim

fuzz: build
	$(CARGO) build --locked --release -p anabranch-fuzz
	$(SUDO) $(TARGET)/release/anabranch-fuzz --product $(TARGET)/release/anabranch --packets $(FUZZ_PACKETS) $(FUZZ)
	FUZZ_TEXTS=100000 $(CARGO) test --locked --release -p anabranch-fuzz --test texts
	ANABRANCH_ROUNDS=2000 $(CARGO) test --locked --release $(AS_ROOT) -p anabranch-fuzz --test served

build: setup
	$(CARGO) build --locked --release -p anabranch-cli -p anabranch-workbench
	scripts/check-size $(TARGET)/release/anabranch $(TARGET)/release/anabranch-lab

setup:
	scripts/setup

setup-checks:
	CARGO='$(CARGO)' scripts/setup checks

setup-rivals:
	scripts/setup rivals

setup-emulator:
	scripts/setup emulator
