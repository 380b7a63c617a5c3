# Two doors: `make run` and `make test`. Both set up what is missing, build, and do it.
# The build itself is CMake's: see CMakePresets.json.

# Gradients to look at: real ones where they are, else generated ones.
SHARED := ../shared/data/grads/gpt-kjv-step1500.safetensors
# SPECS="-c natural:bits=8 -c dither:bits=3" tries others.
GRADS ?= $(if $(wildcard $(SHARED)),$(SHARED),--generate 1Mi)

SPECS ?= -c cast:to=bf16 -c natural:bits=9 -c natural:bits=8 -c ndither:bits=4 -c dither:bits=4 -c ndither:bits=3 -c dither:bits=2

.PHONY: run test test-torch2 build clean

run: build
	build/release/cli/gradwire inspect $(GRADS) --total $(SPECS)

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
