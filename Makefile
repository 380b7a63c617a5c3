# Two doors: `make run` and `make test`. Both set up what is missing, build, and do it.
# The build itself is CMake's: see CMakePresets.json.

# What `make run` compares: COMPARE=dense,dither:bits=4 LINK=1gbit STEPS=1000 make run tries others.
COMPARE ?= dense,natural:bits=8,dither:bits=4,auto
LINK ?= 200mbit
LATENCY ?= 1ms
STEPS ?= 300

.PHONY: run test test-torch2 build clean

# Four ranks, threads of one process on a link of their own, train the same network with each codec.
run: build
	@rm -rf build/run
	build/release/cli/gradwire train --compare $(COMPARE) --ranks 4 --link $(LINK) --latency $(LATENCY) --steps $(STEPS) --out build/run
	@build/release/cli/gradwire report build/run -o build/run/report.html

build:
	@scripts/setup.sh run
	@cmake --preset release >/dev/null
	@cmake --build build/release

test:
	@scripts/setup.sh test
	@scripts/test.sh

# The Python tests with PyTorch's own build of torch, in a virtual environment under build/.
test-torch2:
	@scripts/torch2.sh

clean:
	rm -rf build
