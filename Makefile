# make demo   install foredraft into .venv and let the built-in model answer
# make test   install foredraft into .venv-test, check the code and run all tests
#
# Both start from a clean clone and need Python 3.11 or newer with pip and venv, and a C++ compiler. Another Python:
# make test PYTHON=python3.12. Only some tests: make python-tests PYTEST_ARGS="tests/cli -x".

PYTHON ?= python3
PYTEST_ARGS ?=
PROMPT ?= Write an HTML table with five rows about the planets: name, diameter, moons.

DEMO := .venv
TEST := .venv-test
NINJA := "$(CURDIR)/$(TEST)/bin/ninja"
SOURCES := pyproject.toml CMakeLists.txt $(shell find foredraft native -type f ! -name '*.so' ! -name '*.pyc')

.NOTPARALLEL:
.SILENT:
.PHONY: demo test lint types wheel-check python-tests browser-tests kernel-tests kernel-tests-sanitized \
	kernel-tests-arm clean
unexport PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK := 1

demo: $(DEMO)/installed
	echo '== foredraft generate "$(PROMPT)"'
	$(DEMO)/bin/foredraft generate --max-tokens 96 "$(PROMPT)"

test: lint types python-tests kernel-tests kernel-tests-sanitized
	echo "== all tests passed"

lint: $(TEST)/installed
	echo "== ruff"
	$(TEST)/bin/ruff check
	$(TEST)/bin/ruff format --check

types: $(TEST)/installed
	echo "== mypy --strict"
	$(TEST)/bin/mypy --strict
	$(TEST)/bin/mypy --strict examples scripts

# The command pytest, unlike `python -m pytest`, leaves this folder out of the import path, so the tests see the
# installed package and not the sources next to them, which have no compiled module.
python-tests: $(TEST)/installed
	echo "== pytest"
	$(TEST)/bin/pytest $(PYTEST_ARGS)

# Not among `make test`: these need Chromium (on Debian: apt-get install chromium).
browser-tests: $(TEST)/installed
	echo "== pytest, in a browser"
	$(TEST)/bin/pytest -m browser tests/inspect tests/server/page

kernel-tests: $(TEST)/installed
	echo "== kernel tests (C++)"
	$(call run-kernel-tests,build/kernel-tests,-DCMAKE_BUILD_TYPE=Release)

kernel-tests-sanitized: $(TEST)/installed
	echo "== kernel tests (C++), address and undefined behaviour sanitizers"
	$(call run-kernel-tests,build/kernel-tests-sanitized,-DCMAKE_BUILD_TYPE=Debug -DFOREDRAFT_SANITIZE=address$(comma)undefined)

# Not part of `test`: it needs packages of the system, by Debian's names g++-aarch64-linux-gnu and qemu-user. On an Arm
# machine there is no need for it, since the other tests run its kernels.
kernel-tests-arm: $(TEST)/installed
	echo "== kernel tests (C++) for Arm, in an emulator"
	for tool in aarch64-linux-gnu-g++ qemu-aarch64; do command -v $$tool >/dev/null || \
		{ echo "$$tool is missing: install g++-aarch64-linux-gnu and qemu-user" >&2; exit 1; }; done
	$(call run-kernel-tests,build/kernel-tests-arm,-DCMAKE_TOOLCHAIN_FILE=native/tests/aarch64.cmake)

comma := ,
run-kernel-tests = $(TEST)/bin/cmake -S . -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(NINJA) -DFOREDRAFT_NATIVE_TESTS=ON \
	-DFOREDRAFT_WARNINGS_AS_ERRORS=ON \
	$(2) --log-level=WARNING && $(TEST)/bin/cmake --build $(1) && $(TEST)/bin/ctest --test-dir $(1) --output-on-failure

$(DEMO)/installed: $(SOURCES)
	$(call new-environment,$(DEMO))
	echo "== installing foredraft into $(DEMO); compiling takes about a minute"
	$(DEMO)/bin/python -m pip install --quiet .
	touch $@

$(TEST)/installed: $(SOURCES)
	$(call new-environment,$(TEST))
	echo "== building foredraft, and installing it into $(TEST); this takes a minute or two"
	rm -rf build/wheels
	$(TEST)/bin/python -m pip wheel --quiet --no-deps --wheel-dir build/wheels \
		--config-settings=cmake.define.FOREDRAFT_WARNINGS_AS_ERRORS=ON .
	$(TEST)/bin/python scripts/check_wheel.py build/wheels/*.whl
	for wheel in build/wheels/*.whl; do \
		$(TEST)/bin/python -m pip install --quiet "$$wheel[dev]" && \
		$(TEST)/bin/python -m pip install --quiet --force-reinstall --no-deps "$$wheel"; done
	touch $@

define new-environment
$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else \
	f"foredraft needs Python 3.11 or newer, and $(PYTHON) is {v[0]}.{v[1]}: name another with PYTHON=python3.12")'
command -v "$${CXX:-c++}" >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || \
	{ echo "foredraft needs a C++ compiler: g++ 11 or newer, or clang++ 14 or newer" >&2; exit 1; }
test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
endef

clean:
	rm -rf $(DEMO) $(TEST) build
