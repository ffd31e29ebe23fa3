# Every target that runs something first makes sure that .venv is complete; when it is, that takes a fraction of a second.
PYTHON := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-examples fuzz soak soak-kills recovery forks recovery-changes bench-wheel bench-sinks bench-windows bench-state bench-patterns bench-joins bench-start lint format lock jars clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

setup: ## install Python packages, Java, Spark's class archive, servers and their jars
	@scripts/setup

demo: setup ## run the demonstration
	.venv/bin/headrace demo

# As in Spark's workers, where every core has a task already.
test test-all test-examples fuzz soak-kills: export POLARS_MAX_THREADS = 1

test: lint ## check style, types and layers, then run the tests of the first tier
	$(PYTHON) -m pytest -m "not full" --numprocesses=2 --dist=loadfile

test-all: setup ## run everything else: all timelines on real Spark, every test of servers, kills and outages
	$(PYTHON) -m pytest -m full tests/unit tests/integration tests/recovery --numprocesses=2 --dist=loadfile
	$(PYTHON) -m pytest tests/timelines --engine=spark --numprocesses=2 --dist=loadfile

test-examples: setup ## try every property with twenty times as many examples, chosen anew
	$(PYTHON) -m pytest tests/timelines tests/unit -m hypothesis --engine=inline --examples=20 --numprocesses=2

fuzz: MINUTES = 60
fuzz: setup ## feed every decoder bytes that nobody would send, for MINUTES=60; no row may be lost, no flow stopped
	$(PYTHON) -m tests.fuzz --minutes $(MINUTES)

soak: MINUTES = 30
soak: setup ## run ever-new keys for MINUTES=30; state, files, memory and batch time must stay flat
	$(PYTHON) -m benchmarks.soak --minutes $(MINUTES)

soak-kills: MINUTES = 60
soak-kills: setup ## kill jobs with real sinks for MINUTES=60, with other rows and other moments each time
	$(PYTHON) -m pytest tests/recovery/test_sink_kills.py -m soak --soak=$(MINUTES) --rows=200000

recovery: setup ## kill jobs 50 times for each sink, over a million events, print a table; freeze drivers
	$(PYTHON) -m pytest tests/recovery/test_sink_kills.py tests/recovery/test_zombie.py --kills=50 --rows=1000000

forks: ROUNDS = 200
forks: SEED = 0
forks: setup ## copy checkpoints, put them back, run them beside each other and freeze drivers, ROUNDS=200; SEED= repeats
	$(PYTHON) -m pytest tests/recovery/test_forks.py --rounds=$(ROUNDS) --seed=$(SEED)

recovery-changes: setup ## kill the job that follows a database 5 times over 20,000 changes, on both routes
	$(PYTHON) -m pytest tests/recovery/test_view_kills.py tests/recovery/test_changes_kills.py --changes=20000 --view-kills=5

bench-wheel: setup ## measure the wheel against Spark's own ways
	$(PYTHON) -m benchmarks.wheel

bench-sinks: setup ## measure the sinks against the plain ways of writing
	$(PYTHON) -m benchmarks.sinks

bench-windows: setup ## measure windows against Flink SQL and Spark's own
	$(PYTHON) -m benchmarks.windows

bench-state: setup ## measure keyed state and timers against Spark's own
	$(PYTHON) -m benchmarks.state

bench-patterns: setup ## measure patterns against Flink SQL
	$(PYTHON) -m benchmarks.patterns

bench-joins: setup ## measure joins and lookups against Flink SQL, Spark's own and plain loops
	$(PYTHON) -m benchmarks.joins

bench-start: setup ## measure how long the first result of README's example takes
	$(PYTHON) -m benchmarks.start

lint: setup ## check style, types and layers
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports

format: setup ## rewrite the code in the project's style
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

lock: ## choose versions anew and write requirements.lock
	scripts/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" --group dev pyproject.toml --output-file requirements.lock

jars: setup ## choose the jars of servers and connectors anew and write jars.toml
	$(PYTHON) scripts/pin_jars.py

clean: ## remove everything that set-up and runs have made
	rm -rf .venv .venv-tools .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis \
	  checkpoints spark-warehouse metastore_db derby.log
