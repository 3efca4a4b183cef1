# SPDX-License-Identifier: Apache-2.0
# Words for people; meson and ninja do the work (meson.build). The program lands at build/bitnet.
BUILD   ?= build
PREFIX  ?= /usr/local
ARGS    ?=
MESON   ?= meson
PYTHON  ?= /usr/bin/python3
# Kernels are chosen when the program runs, so AVX=1 and the like, known from elsewhere, do nothing and no harm.

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@$(MESON) setup $(BUILD) --prefix=$(PREFIX) $(ARGS)

test: all
	@$(MESON) test -C $(BUILD) --no-rebuild --print-errorlogs

# The tiers of ./check
quick:
	@./check quick

check:
	@./check

check-all:
	@./check all

# ARCH=arm64: of another CPU, with Debian's cross compiler and libraries; a minimal program
static: static-$(or $(ARCH),here)

static-arm64:
	@sh tools/cross_libs.sh arm64 aarch64-linux-gnu build-libs-arm64
	@test -f build-static-arm64/build.ninja || $(MESON) setup build-static-arm64 --cross-file tests/cross/aarch64-linux-gnu.ini \
	    --cross-file build-libs-arm64/libs.ini -Dstatic=true -Dminimal=true -Dtext=enabled $(ARGS)
	@ninja -C build-static-arm64 bitnet
	@ls -l build-static-arm64/bitnet

static-here:
	@test -f build-static/build.ninja || $(MESON) setup build-static -Dstatic=true -Dtext=enabled $(ARGS)
	@ninja -C build-static bitnet
	@ls -l build-static/bitnet

minimal:
	@test -f build-minimal/build.ninja || $(MESON) setup build-minimal -Dstatic=true -Dminimal=true -Dtext=enabled $(ARGS)
	@ninja -C build-minimal bitnet
	@ls -l build-minimal/bitnet

asan:
	@test -f build-asan/build.ninja || $(MESON) setup build-asan --buildtype=debug -Doptimization=1 \
	    -Db_sanitize=address,undefined -Db_lundef=false
	@ninja -C build-asan
	@$(MESON) test -C build-asan --no-rebuild --print-errorlogs -t 4

# An importable package: PYTHONPATH=build/python
python:
	@cd python && $(PYTHON) setup.py -q build --build-base ../build-python/setup --build-lib ../$(BUILD)/python

bench: all
	@$(BUILD)/bitnet bench --mode kernels --synthetic 2b-4t

install: all
	@$(MESON) install -C $(BUILD) --no-rebuild

uninstall:
	@ninja -C $(BUILD) uninstall

# Debian packages, beside this folder
deb:
	@dpkg-buildpackage -us -uc -b

# Source and static program as tarballs with checksums and a list of what is inside, in build-release/
release:
	@sh tools/make_release.sh

format:
	@sh tools/check_format.sh --fix .

docs: all
	@python3 tools/make_cli_docs.py $(BUILD)/bitnet

# meson writes it; clangd looks for it here
compile_commands.json: $(BUILD)/build.ninja
	@ln -sf $(BUILD)/compile_commands.json $@

clean:
	@rm -rf $(BUILD) build-static build-static-arm64 build-libs-arm64 build-minimal build-asan build-python build-check build-release compile_commands.json

help:
	@echo 'make            build the library and the program into build/'
	@echo 'make test       build, then the tests on this build (which one for what: CONTRIBUTING.md)'
	@echo 'make quick      before a commit, two minutes: the tests that are not slow (./check quick)'
	@echo 'make check      before a merge, half an hour: both compilers, sanitizers, arm64 and riscv64 under qemu (./check)'
	@echo 'make check-all  everything, some hours: also fuzzing and soak tests (./check all)'
	@echo 'make static     one file that runs on any Linux of this architecture, in build-static/ (docs/serve/static.md)'
	@echo 'make static ARCH=arm64    for another CPU, `bitnet run` alone, in build-static-arm64/'
	@echo 'make minimal    the same, small: `bitnet run` alone, in build-minimal/'
	@echo 'make asan       address and undefined-behaviour sanitizers, in build-asan/, with the tests'
	@echo 'make python     the Python package, importable with PYTHONPATH=build/python (docs/use/python.md)'
	@echo 'make bench      time every kernel (the whole engine: bitnet bench)'
	@echo 'make install    into PREFIX (at configuration; default /usr/local), DESTDIR is respected'
	@echo 'make uninstall  removes what make install put there'
	@echo 'make deb        Debian packages, in the folder above (dpkg-dev, debhelper)'
	@echo 'make release    tarballs of the sources and of the static program, checksums, SBOM, in build-release/'
	@echo 'make format     clang-format over all sources'
	@echo 'make docs       write docs/use/cli.md anew from the help of the program'
	@echo 'make compile_commands.json     for clangd and editors'
	@echo 'make clean      remove what the words above made'
	@echo 'ARGS="-Dembed=false" gives options to the configuration; see meson_options.txt'

.PHONY: all test quick check check-all static static-here static-arm64 minimal asan python bench install uninstall deb release format docs clean help
