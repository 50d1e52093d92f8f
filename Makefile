# Everything one does with a checkout. Each target sets up what it needs first, and compiles again when a hot source
# has changed, so a stale compiled module is never run. HOLDFAST_PURE=1 in front of a target leaves the compiler out.

SHELL := /bin/bash
BIN := .venv/bin
CONFIG := $(wildcard holdfast.toml)
TSC := scripts/typescript/node_modules/.bin/tsc

# Where Python is told not to keep what it compiles, every process compiles all that it imports once more.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup ready dependencies run demo cluster test test-systems test-cluster test-long check crash jepsen bench bench-spark docs conformance fuzz chaos audit sbom lock image base-image sbom-image wheels animation site format clean

help:
	@echo 'make setup        install everything, tests and their tools included, into .venv and compile; safe to repeat'
	@echo 'make run          broker on 127.0.0.1: MQTT 1883, WebSocket 8083, MQTT-SN 1884, dashboard 18083; data in ./data'
	@echo 'make demo         broker, fleet, crash, Spark pipeline, audit and report in about a minute'
	@echo 'make cluster      three log servers and three nodes on this machine, ports printed; Ctrl-C stops all'
	@echo 'make test         the tests of the broker, compiled, and again interpreted where that makes a difference'
	@echo 'make test-systems the tests that need another system: Spark, a browser, a cluster, another broker'
	@echo 'make test-cluster the pipeline on a Spark cluster of two workers and through Spark Connect, the demo, and a broken cluster'
	@echo 'make test-long    searches for new bugs: fuzzing, chaos, kills, fresh seeds; BUDGET_S=600 ends in time'
	@echo 'make check        format, lint, types, import contract, links of the documentation'
	@echo 'make crash        kill the broker ROUNDS times (1000) under load and check that nothing acknowledged is lost'
	@echo 'make jepsen       break a cluster in every way for ROUNDS rounds (10) and hold its promises against it; SEED, SYSTEM=one'
	@echo 'make bench        measure Holdfast beside the brokers that are installed, and FlashMQ with FLASHMQ=path;'
	@echo '                  ONLY=cluster measures three nodes beside the MQTT of three nats-servers'
	@echo 'make bench-spark  measure the Spark pipeline: fold, past, incremental run, source, lag'
	@echo 'make docs         regenerate the reference pages and types'
	@echo 'make conformance  run the conformance tests and regenerate docs/reference/conformance.md'
	@echo 'make fuzz         search for inputs that do harm: TARGET=mqtt_decoder FUZZ_S=600'
	@echo 'make chaos        2 000 clients that behave badly for a minute, and a pair that must not notice'
	@echo 'make audit        look up known vulnerabilities of the dependencies'
	@echo 'make sbom         list what a build is made of, as sbom.json (CycloneDX)'
	@echo 'make sbom-image   list what the image is made of, as sbom-image.json, from what it installs'
	@echo 'make lock         regenerate requirements/*.txt, versions with hashes; ARGS=--upgrade takes the newest'
	@echo 'make base-image   look up the digest of the base image and record it; needs docker'
	@echo 'make image        build the image holdfast, from locked packages on a base of known digest; needs docker'
	@echo 'make wheels       build the wheels of a release into dist/, and try each where nothing else is installed'
	@echo 'make animation    film undo and time travel in the dashboard for the README; needs chromium'
	@echo 'make site         the documentation as a website with offline search, in build/site'
	@echo 'make format       format the code and fix what the linter can'
	@echo 'make clean        remove everything that setup and builds created, except data'

setup:
	@scripts/setup

ready:
	@scripts/setup --if-needed

dependencies:
	@scripts/setup --if-needed --no-compile

run:
	@scripts/setup --if-needed --for run
	@exec $(BIN)/holdfast serve $(if $(CONFIG),--config $(CONFIG)) $(ARGS)

demo:
	@scripts/setup --if-needed --for demo
	@$(BIN)/holdfast demo $(ARGS)

cluster: ready
	@exec $(BIN)/python -m holdfast_demo.cluster $(ARGS)

test: ready
	@scripts/test $(ARGS)

test-systems: ready
	@TEST_PART=systems scripts/test $(ARGS)

test-cluster: ready
	@CLUSTER=1 $(BIN)/python -m pytest -n0 -q tests/spark/test_cluster.py tests/integration/test_demo.py \
	    tests/jepsen/test_cluster_rounds.py -W ignore::pytest.PytestUnraisableExceptionWarning $(ARGS)

test-long: ready
	@BUDGET_S=$(BUDGET_S) scripts/test-long $(ARGS)

check: dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@if [ -x $(TSC) ]; then echo $(TSC) -p src/holdfast/ui && $(TSC) -p src/holdfast/ui; \
	    else echo 'check: TypeScript is not installed (it needs npm): the types of the dashboard are not checked'; fi
	$(BIN)/lint-imports
	scripts/base-image --form >/dev/null
	@$(BIN)/python scripts/docs_site.py --check

crash: ready
	@$(BIN)/python tests/crash_story.py --rounds $(or $(ROUNDS),1000)

jepsen: ready
	@PYTHONPATH=tests $(BIN)/python -m jepsen.run --rounds $(or $(ROUNDS),10) --system $(or $(SYSTEM),cluster) \
	    $(if $(SEED),--seed $(SEED)) $(ARGS)

bench: ready
	@$(BIN)/python bench/compare.py $(ARGS)

bench-spark: ready
	@$(BIN)/python bench/spark.py $(ARGS)

docs: dependencies
	@HOLDFAST_PURE=1 $(BIN)/python -m holdfast.config.reference .
	@HOLDFAST_PURE=1 $(BIN)/python -m holdfast.cli.reference .
	@HOLDFAST_PURE=1 $(BIN)/python scripts/api_types.py > src/holdfast/ui/api.d.ts

conformance: ready
	@$(BIN)/python tests/conformance/report.py

# TARGET is one of tests/fuzz/targets.py, or all of them; FUZZ_S is how long each takes.
fuzz: dependencies
	@for target in $(or $(TARGET),$(notdir $(wildcard tests/fuzz/corpus/*))); do \
	    echo "=== $$target"; \
	    $(BIN)/python tests/fuzz/run.py $$target -max_total_time=$(or $(FUZZ_S),60) -timeout=20 || exit 1; \
	done

chaos: ready
	@CHAOS_S=60 CHAOS_CLIENTS=2000 $(BIN)/python -m pytest -q -n0 -m long tests/security/test_chaos.py $(ARGS)

audit: dependencies
	@scripts/audit

sbom: dependencies
	@scripts/sbom > sbom.json && echo 'wrote sbom.json'

sbom-image: dependencies
	@scripts/sbom --image > sbom-image.json && echo 'wrote sbom-image.json'

lock: dependencies
	@scripts/lock $(ARGS)

base-image:
	@scripts/base-image --pin

image:
	@base="$$(scripts/base-image)" && docker build --build-arg BASE="$$base" -f deploy/Dockerfile -t holdfast .

wheels:
	@scripts/wheels

animation: ready
	@$(BIN)/python scripts/animation.py

site: dependencies
	@$(BIN)/python scripts/docs_site.py

format: dependencies
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .make build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf tests/integration/node/node_modules scripts/typescript/node_modules src/*.egg-info
	find src -name '*.so' -delete
	find src tests -name __pycache__ -prune -exec rm -rf {} +
