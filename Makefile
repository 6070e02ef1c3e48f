# The targets a developer and CI use. `make check` is what must pass before a change lands.
GO      ?= go
BIN     ?= bin
GREMLINS := github.com/go-gremlins/gremlins/cmd/gremlins@v0.5.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 30s
# What a new dependency adds shows here: the whole tgad, and the one without what is heavy. Room for a
# few fixes is left in both, since the path of the clone counts too: a binary names its source files.
MAX_SIZE := 43650000
MAX_SLIM := 33560000
# gRPC without pages of its own: they need html/template, which keeps the linker from leaving out
# any method. TAGS=slim is a tgad without SQLite, PostgreSQL, gRPC and OTLP: internal/optional.
TAGS     ?= grpcnotrace
# What runs on many goroutines at once. make accept has the race detector look at everything else that
# has more than one: that takes longer to compile than to run.
CORE    := ./engine ./runtime ./runtime/dispatch/... ./internal/evidence ./internal/evidence/tree
DATA    ?= /tmp/tgad-data
SOCKET  ?= /tmp/tgad-run/tgad.sock

# Without cgo, as tgad is released; the race detector needs it, so that compiles the other half.
test pg race fuzz cost size lint crash: export CGO_ENABLED ?= 0
race race-compile: export CGO_ENABLED = 1

.PHONY: bucket witnesses release packages site build tgad run demo test pg race race-compile fuzz crash torture adapters torture-compare torture-speed interleave soak torture-soak torture-sum kills mutate bench cost size cross foreign lint vectors accept check clean

build: tgad ## bin/tgad, a static binary, with bin/tgad-lab and bin/tgad-postgres, which some of its verbs start
	cd engine/postgres && CGO_ENABLED=0 $(GO) build -tags '$(TAGS)' -trimpath -ldflags '-s -w' -o $(abspath $(BIN))/ ./cmd/tgad-postgres

tgad: ## bin/tgad and bin/tgad-lab, without the store in PostgreSQL
	CGO_ENABLED=0 $(GO) build -tags '$(TAGS)' -trimpath -ldflags '-s -w' -o $(BIN)/ ./cmd/tgad ./cmd/tgad-lab

run: tgad ## a daemon on $(SOCKET) with its store in $(DATA) and a demonstration tool server
	cd $(dir $(abspath $(DATA))) && PATH="$(abspath $(BIN)):$$PATH" exec tgad serve \
	  --data $(abspath $(DATA)) --socket $(abspath $(SOCKET)) --config $(CURDIR)/examples/demo.toml

demo: tgad ## the main job on real processes, about 15 s
	$(BIN)/tgad demo

# Packages whose tests take minutes begin first: the last one would else run alone, and a core wait.
LONGEST := ./internal/mcpfront ./cmd/tgad ./internal/daemon ./engine ./runtime ./internal/crashtest/proc ./internal/crashtest ./internal/interleave ./internal/evidence/verifiers

# Without vet: lint does all of that, and CI runs both.
test: ## every test
	$(GO) test -vet=off -p 4 -timeout 20m $(LONGEST) ./...

# A module of its own: it has a server that speaks the protocol of S3.
bucket: ## backups in a bucket, through kills and faults of the service
	cd bench/bucket && $(GO) vet ./... && $(GO) test -count=1 -timeout 20m ./...

# A module of its own: it has the witness and the log of others.
witnesses: ## a store with litewitness as its witness, and a log of Tessera with ours
	cd bench/witness && $(GO) vet ./... && $(GO) test -count=1 -timeout 20m ./...

# A module of its own: its tests start PostgreSQL servers.
pg: ## the store in PostgreSQL; engine/postgres/install.sh installs the servers
	cd engine/postgres && $(GO) vet ./... && $(GO) test -vet=off -short -timeout 15m ./...

# The tag slim spares the race detector SQLite and gRPC, which take a minute to compile for it and of
# which nothing here is about; pebblegozstd spares it 40 files of C, of a compressor that tgad has only with
# cgo. The tag in the second line is ours alone: Pebble would be built anew for its own.
RACE    := -race -tags slim,pebblegozstd
race: ## the core under the race detector, and with every canonical form compared with jcs
	$(GO) test -vet=off $(RACE) -p 4 -timeout 20m -short $(CORE)
	CGO_ENABLED=0 $(GO) test -vet=off -short -tags jcsagrees ./schemas/... ./wal/chain ./ledger

race-compile: ## what make race compiles, and nothing run
	$(GO) list -export -test -deps $(RACE) -f '{{""}}' $(CORE) >/dev/null
	CGO_ENABLED=0 $(GO) list -export -test -deps -tags jcsagrees -f '{{""}}' ./schemas/... ./wal/chain ./ledger >/dev/null

# One binary for each package: go test -fuzz would link it anew for each target. UNGUIDED=1 builds
# it without counters of what is covered: a few hundred inputs need none, and the counters are in
# every package below, which takes minutes to compile.
fuzz: ## every fuzz target for FUZZTIME
	@set -e; bin=$$(mktemp -d); trap 'rm -rf '$$bin EXIT; \
	for pkg in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
	  $(GO) test -vet=off -c -ldflags '-s -w' $(if $(UNGUIDED),,-fuzz .) -o $$bin/fuzz $$pkg; \
	  cache=$$($(GO) env GOCACHE)/fuzz/$$($(GO) list $$pkg); \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\).*/\1/p' $$pkg/*_test.go | sort); do \
	    echo "fuzz $$pkg $$target $(FUZZTIME)"; \
	    (cd $$pkg && $$bin/fuzz -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 200x -test.fuzzcachedir $$cache </dev/null); \
	  done; \
	done

TORTURE := $(GO) run ./internal/crashtest/torture
REPORT   = -json $(or $(JSON),/dev/null) $(if $(RESULT),-result $(RESULT))

crash: ## a part of every tier that needs no root, about 3 minutes; JSON and RESULT are files for what it reached
	$(TORTURE) -tiers mem,rapid,corrupt,trust,turn,state,planted,proc,ptrace,double,servers,stop -budget $(or $(BUDGET),170s) $(REPORT)

torture: ## every tier, about an hour, and the whole of interleave; as root, with loop devices and FUSE, power cuts too
	$(MAKE) interleave
	$(TORTURE) -tiers mem,rapid,corrupt,trust,turn,state,badinput,planted,proc,ptrace,double,servers,stop,powercut,blocklog -budget $(or $(BUDGET),1h) $(REPORT)

# Modules of their own, so that nothing of other engines is linked into tgad. That of Temporal compiles for a
# quarter of an hour: its server is in it.
adapters: ## bin/tgad-adapter-*, for the kill test of other engines; bench/adapters/install.sh installs what they start
	cd bench/adapters && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(abspath $(BIN))/ ./...
	cd bench/temporal && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(abspath $(BIN))/tgad-adapter-temporal .

torture-speed: tgad adapters ## how fast each of these engines is while nothing is killed, five minutes; RESULT is a file that keeps it
	bash bench/adapters/install.sh $(abspath $(BIN))
	$(BIN)/tgad torture speed --rounds 5 --slice 2s --data . $(if $(RESULT),--result $(RESULT)) \
	  --store dir --store postgres $(foreach e,outbox dbos restate river temporal,--store cmd:$(abspath $(BIN))/tgad-adapter-$e)

torture-compare: tgad adapters ## the kill test of every engine that is here, half an hour; CALLS for each; RESULT is a file that keeps it
	bash bench/adapters/install.sh $(abspath $(BIN))
	$(BIN)/tgad torture compare --calls $(or $(CALLS),24) --patience 2m $(if $(RESULT),--result $(RESULT)) \
	  --store dir --store postgres --store outbox --store cmd:$(abspath $(BIN))/tgad-adapter-outbox --store file $(foreach e,temporal dbos restate river,--store cmd:$(abspath $(BIN))/tgad-adapter-$e $(foreach v,once tgad,--store 'cmd:$(abspath $(BIN))/tgad-adapter-$e $v'))

interleave: ## every order of a few actors, up to STATES of each scenario; then bugs planted in a build of its own
	TGAD_INTERLEAVE=$(or $(STATES),60000) $(GO) test -count=1 -v -timeout 12h -run TestSmallScope ./internal/interleave
	$(GO) test -count=1 -v -timeout 2h -tags torture -run TestPlantedBugsAreFound ./internal/interleave

torture-soak: ## 64 callers of stores that are killed, stopped and cut off at random, for HOURS
	$(TORTURE) -tiers soak -budget $(or $(HOURS),8)h $(REPORT)

# 58 calls a second: what is kept of them for ever fills a disk of 2 GB in three hours.
soak: ## a store in service on an ext4 of 2 GB for HOURS: tail, memory and disk of every minute; needs root
	@set -e; at=$$(mktemp -d); \
	trap 'umount -q $$at/disk || true; rm -rf '$$at EXIT; \
	truncate -s 2G $$at/image; mkfs.ext4 -q -F $$at/image; mkdir $$at/disk; mount -o loop $$at/image $$at/disk; \
	$(GO) run ./bench -steady $(or $(HOURS),2)h -pause 1100ms -dir $$at/disk

torture-sum: ## what the committed runs reached together
	$(TORTURE) -sum bench/results/crash/*.json

kills: ## kill -9 of the daemon under 16 callers; KILLS says how often
	TGAD_KILLS=$(or $(KILLS),300) $(GO) test -count=1 -run 'TestKill' -v -timeout 30m ./cmd/tgad

mutate: ## which changed operators no test of their package notices; PKGS says where
	@bin=$$(mktemp -d) && trap 'rm -rf '$$bin EXIT && GOBIN=$$bin $(GO) install $(GREMLINS) && \
	  nice $(GO) run ./internal/mutate -gremlins $$bin/gremlins $(or $(PKGS),keyspace ledger wal/chain internal/outcome internal/capability)

bench: ## what an append and a call cost, beside the disk's own limit
	$(GO) run ./bench

cost: ## fails where an append costs more than bench/cost.json says; go run ./bench -renew-cost writes that
	$(GO) run ./bench -cost

# Without -trimpath, with which a release is built: it is worth a few kilobytes, and everything there is
# would be compiled once more.
size: ## tgad, stripped as it is released, has at most MAX_SIZE bytes, a slim one MAX_SLIM
	$(GO) test -vet=off -tags slim -run Slim ./internal/optional ./internal/assemble
	@set -e; at=$$(mktemp); trap 'rm -f '$$at EXIT; \
	for of in grpcnotrace:$(MAX_SIZE) slim:$(MAX_SLIM); do \
	  $(GO) build -tags $${of%:*} -ldflags '-s -w' -o $$at ./cmd/tgad; \
	  size=$$(wc -c < $$at); echo "tgad, $${of%:*}, has $$size bytes, at most $${of#*:}"; [ $$size -le $${of#*:} ]; \
	done

cross: ## the types of library, client and command on every system, 20 s; BUILD=1 builds them, minutes
	$(GO) test -run TestCompilesOnEverySystem ./internal/lint
	$(if $(BUILD),@set -e; for system in linux/arm64 darwin/arm64 windows/amd64; do \
	  echo "build $$system"; CGO_ENABLED=0 GOOS=$${system%/*} GOARCH=$${system#*/} \
	  $(GO) build -o /dev/null ./cmd/tgad; done)

# s390x is big-endian, and both processors fuse a multiplication with an addition, which amd64 does not.
foreign: ## what the formats and rules are made of, run for two other processors under QEMU, 20 minutes
	for on in arm64:aarch64 s390x:s390x; do \
	  CGO_ENABLED=0 GOARCH=$${on%:*} $(GO) test -vet=off -short -exec qemu-$${on#*:}-static ./keyspace ./schemas/... ./wal/... ./ledger || exit 1; \
	done

# A module of its own: nothing of it is linked into tgad.
release: ## dist/, everything of a release of the newest commit; KEY is a file with the ed25519 key that signs
	cd packaging && CGO_ENABLED=0 $(GO) run ./release -out $(abspath dist) $(if $(KEY),-key $(abspath $(KEY))) $(if $(TARGETS),-targets $(TARGETS)) $(if $(ONCE),-once)

packages: ## makes a release for this machine, and installs it on machines with systemd; root, minutes
	bash packaging/install.sh
	cd packaging && $(GO) vet ./... && $(GO) test -count=1 -timeout 1h ./...

# In the module of packages, for what makes HTML of Markdown is not linked into tgad either.
site: ## dist/site, the documentation as static pages; every link is followed
	cd packaging && CGO_ENABLED=0 $(GO) run ./site -root $(CURDIR) -out $(abspath dist/site)

lint: ## vet and staticcheck
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

vectors: ## write the golden vectors anew; the tests compare them with what is committed
	$(GO) run ./test_vectors/gen

accept: ## what takes hours, as root; bench/results/accept says what passed. PARTS chooses some
	bash .ci/accept $(PARTS)

check: ## what CI runs
	bash .ci/run

clean:
	rm -rf $(BIN)
