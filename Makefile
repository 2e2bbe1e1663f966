# Every target sets up what it needs by itself (see tools/setup.sh); the second run needs no network.
# PYTHON=python3.12 chooses the Python; ARGS="..." is passed on to pytest or to the benchmarks.
.DEFAULT_GOAL := help
.PHONY: help setup setup-run demo stack test simulate storm soak soak-hour api-server matrix mutations servers class-archive rewritten docs lint audit dist image bench clean

# Each process has servers of its own, and up to 5 GiB; -n 0 in ARGS runs all tests in one. Two more than processors if
# there is room for them, since half of their time is waiting for brokers, databases and processes. One that dies ends
# the run: with another in its place, it might not end at all.
GIB = $(shell awk '/^MemTotal/ {print int($$2 / 1000000)}' /proc/meminfo 2>/dev/null || echo 16)
SIDE_BY_SIDE = --numprocesses=$(shell n=$$(($$(nproc) + ($(GIB) < 20 ? 1 : 2))); echo $$((n < 4 ? n : 4))) --dist=loadfile --no-loadscope-reorder --max-worker-restart=0

export PYTHON
# The demo and the tests start hundreds of workers, none of which is to compile all modules once more.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/.venv/bin:$(PATH)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /make \1	/p' $(MAKEFILE_LIST) | expand -t 14

setup: ## the virtual environment, Java and the jars
	@tools/setup.sh

setup-run: ## setup without the packages that only tests and checks need
	@tools/setup.sh run

demo: setup-run ## the whole job on this machine: Kafka, the worker, Spark, and the result compared with the source
	@binlane demo

stack: setup servers ## a MariaDB, Debezium, Kafka, binlane with Spark and Prometheus, for trying things; q stops all
	@PYTHONPATH=tools:tests python -m stack

test: setup ## lint, then every test, on a real Kafka and real databases
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint servers class-archive $(if $(ARGS),,rewritten)
	@python -m pytest $(SIDE_BY_SIDE) $(ARGS)

simulate: setup ## whole workers under a seeded scheduler and a virtual clock: SEEDS=10000 runs, 1,000 by default
	@python -m tests.simulation --seeds $(or $(SEEDS),1000) $(ARGS)

storm: setup servers class-archive ## real workers, brokers, PostgreSQL and Spark under a seeded storm of faults: MINUTES=10, SEED=n
	@cd tests && PYTHONPATH=.:.. python -m storm --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak-hour: setup servers ## an hour of steady load with a fault a minute: what grows? MINUTES=60; draws samples.png
	@cd tests && PYTHONPATH=.:.. python -m storm --long --no-spark --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: setup servers class-archive ## what takes long: every stream into Spark tables, two workers, many kills; real stores ...: two hours
	@tools/setup.sh stores
	@tools/setup.sh registry
	@python -m pytest -m soak --ignore=tests/deployment/test_api_server.py \
		--ignore=tests/deployment/test_deployment_walk.py $(ARGS)
	@PYTHONPATH=tests python -m tests.model --minutes $(or $(MINUTES),60)
	@cd tests && PYTHONPATH=.:.. python -m storm --minutes 5

api-server: setup ## what is in k8s/, on Kubernetes' own API server (built with Go, once: ten minutes, 3 GB)
	@tools/setup.sh api-server
	@python -m pytest -m soak -rP tests/deployment/test_api_server.py tests/deployment/test_deployment_walk.py $(ARGS)

matrix: setup servers ## Spark's tests with each other Spark and its Delta, half an hour each: SPARK=4.0 for one
	@tools/matrix.sh $(SPARK)

mutations: setup servers class-archive ## put each known defect back: which test catches it, and after how many seconds
	@python tests/mutations $(ARGS)

servers: ## what the tests start: PostgreSQL, MariaDB, Redis, Prometheus, Alertmanager
	@tools/setup.sh servers

class-archive: setup # makes the tests' Sparks and brokers start in half the time
	@python -m handlers.spark.training
	@PYTHONPATH=. python tools/broker_classes.py

rewritten: setup # the tests' asserts, once: the processes that begin side by side would each do it, for 20 s
	@PYTHONPATH=tests python -m pytest --collect-only -qq -p only_modules

lint: setup ## style, types, prose, imports between layers, scripts and deployment files
	@ruff check .
	@ruff format --check .
	@mypy
	@lint-imports --no-logo --no-cache
	@if [ -f tools/prose.py ]; then python tools/prose.py; fi
	@if command -v shellcheck >/dev/null; then shellcheck tools/*.sh .ci/run; fi
	@if [ -f tools/check_deployment.py ]; then python tools/check_deployment.py; fi

docs: setup ## the documentation as a site in build/site; fails for a broken link or a page without a place
	@PYTHONPATH=tools python -m docs_site

audit: setup ## look the pinned Python packages up in PyPI's advisories (needs PyPI itself)
	@tools/audit.sh

dist: setup-run ## wheel, sdist, SBOM (CycloneDX) and their SHA-256 in dist/
	@tools/setup.sh dist
	@PYTHONPATH=.venv/dist-tools python tools/dist.py

image: ## the image binlane:VERSION; BASE=python@sha256:... builds upon just that one
	@docker build $(if $(BASE),--build-arg PYTHON_IMAGE=$(BASE)) --tag binlane:$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' worker/__init__.py) .

bench: setup ## the benchmarks, with their peers in the same run
	@python -m benchmarks $(ARGS)

clean: ## all that was made here, .venv too (the downloaded jars stay in ~/.cache/binlane)
	@rm -rf .venv build dist demo-output benchmarks/results spark-warehouse metastore_db derby.log
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
