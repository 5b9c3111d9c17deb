# `make help` lists what there is. `make demo` and `make test` set everything up by themselves.
.DEFAULT_GOAL := help
PY := .venv/bin/python
COVERAGE_MIN ?= 96
# A test file stays in one process, since its fixtures are shared. Three processes on two cores: a third of the time is waiting.
PYTEST := -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
# Tests write, sync and delete many small files: in memory, where 6 GB of it are free for files.
TEST_TMP := $(shell df -k --output=avail /dev/shm 2>/dev/null | awk 'END { print ($$1 > 6000000) ? "/dev/shm" : "'"$${TMPDIR:-/tmp}"'" }')
MINUTES ?= 60
export TIDEMILL_CACHE ?= $(HOME)/.cache/tidemill
# Where it is set, each of the many processes of the tests compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup fmt check test-programs test test-kubernetes coverage soak demo demo-graph bench e2e promises fresh-machine spec lock audit sbom dist docs clean

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

setup: ## .venv with the tidemill command, and a Java runtime
	@bash scripts/setup.sh

fmt: setup ## format the code
	@$(PY) -m ruff format -q . && $(PY) -m ruff check -q --fix .

check: setup ## lint, types, layers, links in docs
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m mypy scripts
	.venv/bin/lint-imports --no-cache
	PYTHONPATH=operator/src .venv/bin/lint-imports --no-cache --config operator/pyproject.toml
	$(PY) scripts/generate_crds.py --check
	$(PY) scripts/generate_paths.py --check
	$(PY) scripts/generate_graphs.py --check
	$(PY) scripts/generate_operations.py --check
	$(PY) scripts/generate_rama_names.py --check
	$(PY) scripts/check_docs.py

# What tests start, and what starts it sooner.
test-programs: setup
	@bash scripts/minio.sh >/dev/null
	@sh scripts/chromium.sh >/dev/null
	@bash scripts/kafka.sh >/dev/null
	@$(PY) scripts/class_archive.py >/dev/null

test: test-programs ## all tests (real Spark, a real MinIO server, a real Apache Kafka broker, a real browser)
	TMPDIR=$(TEST_TMP) $(PY) $(PYTEST)

coverage: test-programs ## all tests, and how much of the code they run; fails below COVERAGE_MIN percent; TESTS= names some only
	$(PY) -m coverage erase
	TMPDIR=$(TEST_TMP) $(PY) -m coverage run $(PYTEST) $(TESTS)
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report --fail-under=$(COVERAGE_MIN)

soak: setup ## MINUTES=60 of small microbatches while the runner is killed and the store cuts; nothing may be lost or grow
	@bash scripts/minio.sh >/dev/null
	@$(PY) -m soak --minutes $(MINUTES)

demo: setup ## 336,776 flights through a module that is killed once in the middle
	@$(PY) examples/flights/demo.py

demo-graph: setup ## TPC-H 12 and PageRank as task graphs, killed in the middle, resumed and compared with DuckDB
	@$(PY) examples/taskgraph/demo.py

bench: setup ## measure against Structured Streaming and DuckDB; writes benchmarks/results.json
	@$(PY) -m benchmarks

e2e: setup ## stories on a real Kubernetes cluster; all, or STORIES=quick, or STORIES="name name"
	@$(PY) -m e2e $(STORIES)

promises: setup ## bring what make e2e measured into docs/kubernetes/promises.md and e2e/results.json
	@$(PY) -m e2e publish

test-kubernetes: setup ## tests of images, chart and test cluster (root; builds what is missing)
	@bash e2e/cluster/tools.sh
	@$(PY) -m e2e.images build
	@$(PY) -m pytest images/tests charts/tests/test_chart.py e2e/cluster/tests

fresh-machine: ## make demo and make test on bare Debian 12 and 13 (root); or TARGETS=demo, SUITES=forky (Debian 14 to be, Python 3.14)
	@bash scripts/fresh_machine.sh $(TARGETS)

spec: setup ## check the commit protocol as a TLA+ model, and that each mistake in it is found
	@$(PY) scripts/check_spec.py "$$(bash scripts/tlc.sh)"

lock: setup ## write the lock files anew, with hashes
	@bash scripts/lock.sh

audit: setup ## compare the locked packages with the published vulnerabilities; what cannot be compared fails
	@$(PY) scripts/audit.py "$$(bash scripts/supply.sh pip-audit)" requirements.lock

sbom: setup ## the bill of materials of the locked packages, as CycloneDX JSON in dist/
	@mkdir -p dist && $$(bash scripts/supply.sh cyclonedx-py) requirements requirements.lock --pyproject pyproject.toml \
		--output-reproducible --of JSON -o dist/tidemill.cdx.json && echo dist/tidemill.cdx.json

dist: setup ## wheels and source packages of tidemill and tidemill-operator in dist/
	@bash scripts/dist.sh dist

docs: setup ## the documentation as a site in dist/docs; strict, and without another host
	@bash scripts/site.sh

clean: ## remove what the other targets made in this folder
	rm -rf .venv dist tidemill-data demo-data .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
