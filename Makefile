# The commands of this repository. `make` alone lists them.
#
# Nothing but Go is needed: what else a target uses it installs into bin/, in the version
# that is named here.

GO       ?= go
MODULE   := github.com/mscheduler/mscheduler
BIN      := $(CURDIR)/bin
PACKAGES ?= ./...

GOLANGCI_VERSION := v2.6.0
GOLANGCI         := $(BIN)/golangci-lint-$(GOLANGCI_VERSION)

# The longest a package's tests may take, and a fuzzer of `make fuzz`.
TEST_TIMEOUT ?= 15m
FUZZ_TIME    ?= 10s

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## 2,000 tasks and a flow, three workers, two killed, one frozen: nothing is lost
	$(GO) run ./cmd/mscheduler demo $(ARGS)

.PHONY: check
check: ## lint with format and vet, every test, with -race where goroutines meet, every engine
	@$(MAKE) --no-print-directory -j2 lint test
	@$(MAKE) --no-print-directory scenarios

# Compilers and linkers spend a fifth of their time, and the linter two fifths, collecting garbage. Few machines need that
# memory back.
lint test scenarios: export GOGC       ?= 400
lint test scenarios: export GOMEMLIMIT ?= 2GiB

# Many tests wait for leases and clocks, so the tests of more packages than there are processors run at
# once. golangci-lint vets them. Without the symbols of debuggers they are linked in half the time. The
# race detector would sleep for a second before the end of each process.
TEST_FLAGS := -json -p 3 -vet=off -ldflags=-w -timeout $(TEST_TIMEOUT)
export GORACE ?= atexit_sleep_ms=0

# The race detector makes everything many times slower. It watches each package that starts goroutines or
# takes locks, in its code or in its tests. Not with it run the rules, which are pure, and the programs, since
# what they put together is watched where it is written. `make long` has the programs with it.
PROGRAMS := ./cmd/mscheduler ./docs/tutorial ./internal/bench ./internal/cli ./internal/dashboard ./internal/house
# Of fleets with so many goroutines the detector of Go 1.26 fails by an assertion of its own (tsan_rtl.cpp:346).
MODELS   := ./internal/scalemodel
TESTED    = $(sort $(patsubst %/,%,$(dir $(shell find . -name '*_test.go' -not -path '*/testdata/*'))))
RACED     = $(filter-out $(PROGRAMS) $(MODELS),$(filter $(TESTED),$(sort $(patsubst %/,%,$(dir $(shell grep -rlE --include='*.go' '^[[:space:]]+go [A-Za-z.]+[()]|"sync"|"sync/atomic"' .))))))
PLAIN     = $(filter-out $(RACED) ./internal/dashboard,$(TESTED))

.PHONY: test
test: ## every test, with -race where goroutines meet, on the embedded server and at MSCHEDULER_MONGODB_URI
	@echo '$(GO) test -race -short $(RACED); $(GO) test $(PLAIN)'
	@export MSCHEDULER_TEST_ENGINES=embedded,uri; plain=$$(mktemp); trap 'rm -f $$plain' EXIT; { \
		$(if $(PLAIN),$(GO) test $(TEST_FLAGS) -parallel 8 $(PLAIN) >$$plain &) \
		$(GO) test $(TEST_FLAGS) -parallel 8 -race -short $(RACED); wait; cat $$plain; } | $(GO) run ./internal/house/report

# By -short `make test` leaves out, or reduces, tests that take long with the race detector and whose size
# matters more. Each of these calls testing.Short() itself, virtually(t, …) or setBack(t, …): by it `make scenarios` finds them, and repeats no
# other test of their packages. Of the scenarios, and of the tests of the dashboard, which need a browser, it runs all.
IN_SHORT     = testing\.Short\(\)|virtually\(t|setBack\(t
SHORT_FILES  = $(shell grep -rlE --include='*_test.go' '$(IN_SHORT)' $(addsuffix /*_test.go,$(RACED)))
WITHOUT_RACE = $(shell awk -F '[ \050]' '/^func / { name = $$2 } /^func Test/ && FILENAME ~ /^.\/integration\/[a-z_]*.go|dashboard/ || /$(IN_SHORT)/ { print name }' \
	$(SHORT_FILES) ./integration/*_test.go ./internal/dashboard/*_test.go | sort -u | paste -s -d '|')
FULL = $(sort ./integration ./internal/dashboard $(patsubst %/,%,$(dir $(SHORT_FILES))))

.PHONY: scenarios
scenarios: ## the other engines that are at hand, and what matters at full size, without -race
	@echo 'MSCHEDULER_TEST_ENGINES=others $(GO) test $(FULL)'
	@MSCHEDULER_TEST_ENGINES=others $(GO) test $(TEST_FLAGS) -run '^($(WITHOUT_RACE))$$' $(FULL) | $(GO) run ./internal/house/report

.PHONY: long
long: ## make check's tests without its limits: programs with -race, full size, killed and frozen processes on every engine
	@MSCHEDULER_TEST_LONG=1 $(MAKE) --no-print-directory test RACED='$(RACED) $(PROGRAMS)' PLAIN='$(MODELS)' TEST_TIMEOUT=40m
	@MSCHEDULER_TEST_LONG=1 $(MAKE) --no-print-directory scenarios TEST_TIMEOUT=40m

.PHONY: build
build: ## bin/mscheduler, a static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X $(MODULE)/internal/cli.Version=$(VERSION)' -o $(BIN)/mscheduler ./cmd/mscheduler

.PHONY: fmt
fmt: $(GOLANGCI) ## format the code
	$(GOLANGCI) fmt

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint with .golangci.yml; make fmt mends the format
	$(GOLANGCI) run --allow-parallel-runners $(PACKAGES)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZ_TIME (10s); the embedded server against itself and others
	MSCHEDULER_FUZZ_QUERIES=100000 MSCHEDULER_FUZZ_COMMANDS=10000 $(GO) test -v -count=1 -timeout 30m \
		-run 'TestIndexAnswersAsScanDoes|TestAnIndependentEngineAnswersTheSame' ./internal/embedded ./internal/embedded/plan
	@set -e; for pkg in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) $$pkg; \
		done; \
	done

.PHONY: router
router: ## every scenario on an embedded server that is taken for mongos
	MSCHEDULER_TEST_ENGINES=router $(GO) test -count=1 -timeout $(TEST_TIMEOUT) ./integration

.PHONY: kill
kill: ## kill -9 the embedded server, 50 times over 100,000 documents: nothing is lost
	MSCHEDULER_KILL_ROUNDS=50 MSCHEDULER_KILL_DOCS=100000 $(GO) test -v -count=1 -timeout 30m -run TestKillLosesNoAcknowledgedWrite ./internal/embedded

.PHONY: ticks
ticks: ## engines killed and frozen under 2,000 rules a second for 5 minutes: no tick is lost or doubled
	MSCHEDULER_TEST_ENGINES=embedded MSCHEDULER_TICKS_RULES=2000 MSCHEDULER_TICKS_SECONDS=300 \
		$(GO) test -v -count=1 -timeout 60m -run TestEveryTickHasOneRecord ./integration

.PHONY: streams
streams: ## 50,000 nodes to one stream and to 1,000, processes killed and frozen: none lost, none twice, all in order
	MSCHEDULER_TEST_ENGINES=embedded MSCHEDULER_STREAMS_NODES=100000 MSCHEDULER_STREAMS_MANY=1000 MSCHEDULER_STREAMS_SECONDS=120 \
		$(GO) test -v -count=1 -timeout 60m -run TestStreamsKeepTheirOrderAlthoughProcessesDieAndFreeze ./integration

.PHONY: plans
plans: ## 2,000 plans, processes killed and frozen: each step succeeds once, in order, with its results
	MSCHEDULER_TEST_ENGINES=embedded MSCHEDULER_PLANS_COUNT=2000 MSCHEDULER_PLANS_SECONDS=60 \
		$(GO) test -v -count=1 -timeout 30m -run TestEachStepOfAPlanSucceedsOnceAlthoughProcessesDieAndFreeze ./integration

.PHONY: sim
sim: ## 10,000 simulated deployments in virtual time, in which everything goes wrong: the promises are kept
	MSCHEDULER_SIM_SEEDS=10000 $(GO) test -v -count=1 -timeout 6h -run TestPromises ./integration/sim

# The nemesis draws from CHAOS_SEED; it is printed.
CHAOS_TIME ?= 1m
CHAOS_SEED ?=

.PHONY: chaos
chaos: ## real processes, CHAOS_TIME (1m) on each engine: killed, frozen, cut off, servers too: no promise is broken
	MSCHEDULER_CHAOS_TIME=$(CHAOS_TIME) MSCHEDULER_CHAOS_SEED=$(CHAOS_SEED) $(GO) test -v -count=1 -timeout 0 -run TestChaos ./integration/chaos

.PHONY: zones
zones: ## the time zone database of this Go release becomes that of periodic rules
	cp "$$($(GO) env GOROOT)/lib/time/zoneinfo.zip" internal/calendar/zoneinfo.zip
	sed -n 's/^DATA=//p' "$$($(GO) env GOROOT)/lib/time/update.bash" > internal/calendar/zoneinfo.version
	@cat internal/calendar/zoneinfo.version

.PHONY: api
api: build ## half an hour of generated requests against the REST API, with a token of each role
	SECONDS_EACH=450 CI=true .ci/api

.PHONY: bench
bench: ## every scenario of mscheduler bench, small, as a table (ARGS="--uri ..." for MongoDB)
	$(GO) run ./cmd/mscheduler bench --small $(ARGS)

.PHONY: bench-go
bench-go: ## the Go benchmarks of the rules and of the embedded server
	$(GO) test -run '^$$' -bench . -benchmem $(PACKAGES)

.PHONY: clean
clean: ## remove bin/
	rm -rf $(BIN)

$(GOLANGCI):
	@mkdir -p $(BIN)
	GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(BIN)/golangci-lint $@
