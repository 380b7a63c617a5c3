# Two doors: `make run` and `make test`. Both set up what is missing, build, and do it.
# The build itself is CMake's: see CMakePresets.json.

# What `make run` compares: COMPARE=dense,dither:bits=4 LINK=1gbit STEPS=1000 make run tries others.
COMPARE ?= dense,cast:to=bf16,natural:bits=8,dither:bits=4,auto
LINK ?= 200mbit
LATENCY ?= 1ms
STEPS ?= 300

.PHONY: run check test test-all build clean

# Four ranks, threads of one process on a link of their own, train the same network with each codec.
run:
	@scripts/setup.sh run
	@cmake --preset release >/dev/null
	@cmake --build build/release --target gradwire
	@rm -rf build/run
	build/release/cli/gradwire train --compare $(COMPARE) --ranks 4 --link $(LINK) --latency $(LATENCY) --steps $(STEPS) --out build/run
	@build/release/cli/gradwire report build/run -o build/run/report.html

# The library, the commands and what else can be built here, for `cmake --install build/release`.
build:
	@scripts/setup.sh run
	@cmake --preset release >/dev/null
	@cmake --build build/release

# House checks and quick tests. Installs nothing.
check:
	@scripts/setup.sh check
	@scripts/test.sh check

# The functional tests, quick ones first.
test:
	@scripts/setup.sh test
	@scripts/test.sh test

# What `make test` leaves out: clang with its sanitizers, clang-tidy, emulated processors, another MPI, browsers, another torch.
test-all:
	@scripts/setup.sh all
	@scripts/test.sh all

clean:
	rm -rf build
