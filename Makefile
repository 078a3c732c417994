# Everything that a newcomer runs. `make demo` and `make test` need a Debian 12 machine with a Swift toolchain, no more.
SCRATCH ?= .build
PREFIX ?= /usr/local
SWIFT ?= swift
# One file that needs glibc and nothing else: Swift's libraries and the archives of Debian's packages are linked into it.
# Stripped it has 38.5 MB, beside 36.2 MB with eleven shared libraries; `mayfly status` takes 7.2 ms, beside 10.0 ms.
# Nothing in the file depends on the directory in which it was built: no source path, and no build id, which covers the
# debug information. Swift's own unrolling of loops (LLVM has another) orders the arguments of a block by the addresses of
# values in the compiler, other ones in each run.
STATIC = $(abspath $(SCRATCH))/static
RELEASE = -c release --static-swift-stdlib --scratch-path $(SCRATCH) -Xcc -ffile-prefix-map=$(CURDIR)=. \
	--disable-local-rpath --pkg-config-path $(STATIC) $(addprefix -Xlinker ,--no-export-dynamic --build-id=none) \
	$(addprefix -Xswiftc ,-Xllvm -sil-disable-pass=loop-unroll)
# Without address randomisation, for what else there may be of that kind.
STEADY := $(shell setarch -R true 2>/dev/null && echo setarch -R)
MAYFLY = $(SCRATCH)/release/mayfly
PACKAGES = libsodium-dev libssl-dev libsecp256k1-dev zlib1g-dev libminiupnpc-dev libstdc++-12-dev pkg-config python3
export SWIFT_BACKTRACE ?= enable=no
SHELL = /bin/bash
.SHELLFLAGS = -o pipefail -c

# `make test` needs one debug build, no root, and no package but the libraries. It leaves out what `make check` runs:
# searches for mistakes (simulation, power cuts, planted mistakes), which are to find what a change has broken
# unseen, and scripts that repeat the rules of the core, need a network or a tracer of their own, or wait by the clock.
alternatives = $(subst $(SPACE),|,$(strip $(1)))
SPACE := $(subst ,, )
CHECK_UNITS = ^($(call alternatives, NodeSimulationTests SimulationTests MessagingTests[.]GroupLifetimeExploration \
	StoreTests[.](CampaignTests|CrashTests|PowerCutTests|JournalFaultTests|MailboxForensicTests) \
	NodeRuntimeTests[.]MailboxPowerCutTests TransportTests[.]CongestionTests))
CHECK_SCRIPTS = ^EndToEndTests[.]($(call alternatives, CanaryTests ClientLimitTests Clock Confinement Copies Crash Datagram \
	HangingDisk HostileNetwork Lan LongList MachineNetwork Memory Metrics Netcheck \
	PassphraseChange PortMapping Reservation SystemCall ExpectationTests/network))
RUN_TESTS = $(SWIFT) test --skip-build --scratch-path $(SCRATCH)

# Parts of one target share the build directory and the machine.
.NOTPARALLEL:
.PHONY: all deps build demo test lint links docs bench linkrates simulate hostile install uninstall deb proto clean

all: build

deps:
	@sh .ci/packages $(PACKAGES)
	@sh Sources/Debian/archives.sh $(STATIC)

build: deps
	$(STEADY) $(SWIFT) build $(RELEASE) --product mayfly

demo: build
	MAYFLY=$(MAYFLY) bash Tests/Demo/demo.sh

lint: links
	$(SWIFT) format lint --strict --recursive --configuration .swift-format Sources Tests Package.swift

# Every link between pages, and from them to files, leads somewhere.
links:
	python3 Tests/Links/links.py
	python3 Tests/Structure/structure.py

# The documentation as a site in $(SCRATCH)/docs, by the toolchain's docc, without a network: pages and symbols. Fails at a
# link that leads nowhere. For a web server that serves it below a path: make docs DOCS_BASE=/mayfly
DOCS_BASE ?= /
docs: deps links
	for module in Messaging Store; do $(SWIFT) build --scratch-path $(SCRATCH) --target $$module || exit 1; done
	python3 Sources/Manual/docs.py "$$($(SWIFT) build --scratch-path $(SCRATCH) --show-bin-path)" $(SCRATCH)/docs $(DOCS_BASE)

# Every part runs, also after one that has failed. The whole output is in test.log or check.log; at the end stands what
# failed.
.PHONY: test-parts check check-parts
test check:
	@mkdir -p $(SCRATCH)
	@$(MAKE) --keep-going --no-print-directory $@-parts 2>&1 | tee $(SCRATCH)/$@.log || { \
		printf '\nWhat failed:\n'; grep -aA 2 '^✘' $(SCRATCH)/$@.log; grep -a '^make.*\*\*\* \[' $(SCRATCH)/$@.log; exit 1; }

test-parts: lint units scripts
check-parts: allocations package check-units check-scripts chat quick-matrix

.PHONY: test-packages test-build units scripts check-units check-scripts chat quick-matrix
test-packages:
	@sh .ci/packages strace e2fsprogs iproute2 nftables miniupnpd-nftables tmux chafa

test-build: deps
	$(SWIFT) build --build-tests --scratch-path $(SCRATCH) --explicit-target-dependency-import-check error

# Scripts start real nodes and take both processors, so units and scripts run one after the other.
units: test-build
	$(RUN_TESTS) --skip '^EndToEndTests' --skip '$(CHECK_UNITS)'

scripts: test-build
	$(RUN_TESTS) --filter '^EndToEndTests' --skip '$(CHECK_SCRIPTS)'

check-units: test-packages test-build
	$(RUN_TESTS) --filter '$(CHECK_UNITS)'

# With the program as people run it.
check-scripts: test-packages test-build build
	MAYFLY=$(abspath $(MAYFLY)) $(RUN_TESTS) --filter '$(CHECK_SCRIPTS)'

chat: test-packages build
	python3 Tests/Chat/chat.py $(MAYFLY) $(SCRATCH)/chat.txt

# 77: no network namespaces here, which it says.
quick-matrix: test-packages build
	@python3 Tests/Matrix/matrix.py $(MAYFLY) --quick || [ $$? -eq 77 ]

# How many blocks of memory a stored message takes, against limits that only go down.
.PHONY: allocations
allocations: deps
	$(SWIFT) build $(RELEASE) --product allocations
	$(SCRATCH)/release/allocations

# The examples of the specification, computed from its pages alone.
.PHONY: vectors
vectors:
	python3 Tests/Vectors/vectors.py

# The node beside a floor in C, in turns, and whether the goals are met. Short: make bench BENCH="--runs 3 --only messages"; also --only mailbox, neighbours, linked or curve
BENCH ?=
bench: build
	for product in benchmarks floor linkrates; do $(SWIFT) build $(RELEASE) --product $$product || exit 1; done
	$(SCRATCH)/release/benchmarks --mayfly $(MAYFLY) $(BENCH)

# When what has expired is hidden, overwritten, and its key gone: real nodes and a real hour.
.PHONY: expiry coverage
expiry: build
	python3 Tests/Benchmarks/expiry.py $(MAYFLY)

# How much of the code the unit tests run through; fails below 95 % of the lines of what must not be wrong.
COVERAGE = --scratch-path $(COVERAGE_SCRATCH) --enable-code-coverage
COVERAGE_SCRATCH ?= .build-coverage
coverage: deps
	@sh .ci/packages strace e2fsprogs iproute2 nftables miniupnpd-nftables
	$(SWIFT) build --build-tests $(COVERAGE)
	@$(SWIFT) test --skip-build $(COVERAGE) --skip EndToEndTests >$(COVERAGE_SCRATCH)/units.log 2>&1 \
		|| { grep -A 2 '^✘' $(COVERAGE_SCRATCH)/units.log; exit 1; }
	python3 Tests/Coverage/coverage.py "$$($(SWIFT) test --show-codecov-path $(COVERAGE))"

# Links over TCP and over UDP on the loopback, in turns, then files directly and through a rendezvous node:
# make linkrates MEBIBYTES=64 ROUNDS=5
MEBIBYTES ?= 64
ROUNDS ?= 5
linkrates: build
	$(SWIFT) build $(RELEASE) --product linkrates
	$(SCRATCH)/release/linkrates $(MEBIBYTES) $(ROUNDS)
	python3 Tests/LinkRates/relay.py $(MAYFLY) $(MEBIBYTES) $(ROUNDS)

# Two campaigns, of the protocol core and of whole nodes: make simulate SEEDS=10000 SECONDS=600 SEED=1
# PART=core or PART=node runs one of them. Each takes at most SECONDS, in as many processes as there are cores.
SEEDS ?= 1000
SECONDS ?= 60
SEED ?= 1
PART ?= core node
JOBS ?= $(shell nproc)
simulate: deps
	$(SWIFT) build $(RELEASE) --product simulate
	@failed=0; for part in $(PART); do \
		for job in $$(seq $(JOBS)); do \
			$(SCRATCH)/release/simulate --part $$part --limit $(SECONDS) --stride $(JOBS) \
				--first $$(($(SEED) + job - 1)) --seeds $$((($(SEEDS) + $(JOBS) - 1) / $(JOBS))) & jobs[$$job]=$$!; \
		done; \
		for job in $$(seq $(JOBS)); do wait $${jobs[$$job]} || failed=1; done; \
	done; exit $$failed

# The store: power cuts at every call, whatever survives of it; a kill, and a power cut later; every call failing; a thief with all that was ever written.
# Then the program under strace and ext4 images, all calls. make crash SECONDS=2400 SEED=1
.PHONY: crash forensic
CAMPAIGN = $(SCRATCH)/release/campaign
crash: deps
	@sh .ci/packages strace e2fsprogs
	$(SWIFT) build $(RELEASE) --product campaign
	$(CAMPAIGN) crash --seconds $(SECONDS) --seed $(SEED)
	$(CAMPAIGN) kill --seconds $(SECONDS) --seed $(SEED)
	$(CAMPAIGN) faults --seconds $(SECONDS) --seed $(SEED)
	$(SWIFT) build --build-tests --scratch-path $(SCRATCH)
	MAYFLY_CAMPAIGN=1 $(SWIFT) test --skip-build --scratch-path $(SCRATCH) --filter 'SystemCallTests|PowerCutTests'

forensic: deps
	$(SWIFT) build $(RELEASE) --product campaign
	$(CAMPAIGN) forensic --seconds $(SECONDS) --seed $(SEED)
	$(CAMPAIGN) mailbox --seconds $(SECONDS) --seed $(SEED)

# libFuzzer and AddressSanitizer on every decoder and on whole sessions: make fuzz SECONDS=600 TARGET="frame control"
# Optimised, with a scratch directory of its own; the C++ library is libFuzzer's. Fails if anything fails. With dead code
# the linker would strip the counters by which libFuzzer sees what an input reaches. Told of two
# sanitizers one after the other, the compiler uses the last; and the package manager draws their order anew each time.
# It goes on where earlier campaigns of the same code stopped, until RUNS inputs of each target, JOBS targets at a time.
# Tests/CFuzz stands between the program and the functions of FUZZ_WRAPPED.
.PHONY: fuzz
FUZZ_SCRATCH ?= .build-fuzz
FUZZ_WRAPPED = $(addprefix __sanitizer_cov_,8bit_counters_init pcs_init trace_pc_indir \
	trace_cmp1 trace_cmp2 trace_cmp4 trace_cmp8 trace_const_cmp1 trace_const_cmp2 trace_const_cmp4 trace_const_cmp8) \
	$(addprefix secp256k1_,ec_pubkey_create ec_pubkey_parse ecdh keypair_create \
	schnorrsig_sign32 schnorrsig_verify ecdsa_recover ecdsa_sign_recoverable) \
	crypto_aead_xchacha20poly1305_ietf_decrypt randombytes_buf
RUNS ?= 10000000
TARGET ?=
fuzz:
	@sh .ci/packages $(PACKAGES)
	$(SWIFT) build -c release --scratch-path $(FUZZ_SCRATCH) --sanitize=fuzzer --sanitize=address \
		-Xswiftc -sanitize=fuzzer,address \
		-Xswiftc -enable-testing -Xswiftc -DFUZZING --disable-dead-strip \
		$(addprefix -Xlinker --wrap=,$(FUZZ_WRAPPED)) --product fuzz
	MERGE=$(MERGE) JOBS=$(JOBS) Tests/Fuzz/fuzz.sh $(FUZZ_SCRATCH)/release/fuzz $(FUZZ_SCRATCH)/campaign $(SECONDS) $(RUNS) $(TARGET)

# Thread, then AddressSanitizer: the tests of the shell, and three nodes under load for SECONDS each.
.PHONY: sanitize soak
sanitize: deps
	Tests/Sanitize/sanitize.sh thread .build-tsan $(SECONDS)
	Tests/Sanitize/sanitize.sh address .build-asan $(SECONDS)

# Three nodes under steady load; fails if memory, descriptors, threads or the disk grow: make soak SECONDS=3600 SEED=1
soak: build
	python3 Tests/Soak/soak.py $(MAYFLY) --seconds $(SECONDS) --seed $(SEED)

# What hostile peers do to a node, while an honest pair chats: make hostile SECONDS=200
# One attack at length, and what it does to memory: make hostile SECONDS=1200 ATTACK="--only proposals --units 1000000"
# With the honest pair's links over UDP, as root: make hostile SECONDS=200 CARRIER=udp ATTACK="--only UDP"
# From a neighbour on its network, too, as root: make hostile SECONDS=60 CARRIER=lan ATTACK="--only LAN"
ATTACK ?=
CARRIER ?=
hostile: build
	$(SWIFT) build $(RELEASE) --product hostile
	$(if $(filter udp,$(CARRIER)),bash Tests/Hostile/without-tcp.sh) $(if $(filter lan,$(CARRIER)),bash Tests/Hostile/with-neighbour.sh) $(SCRATCH)/release/hostile --mayfly $(MAYFLY) --seconds $(SECONDS) $(ATTACK)

# Two nodes behind every pair of kinds of network, in network namespaces; as root. All cells, or make matrix CELLS="cone:* lan:lan"
.PHONY: matrix
CELLS ?=
matrix: build
	@sh .ci/packages iproute2 nftables miniupnpd-nftables
	python3 Tests/Matrix/matrix.py $(MAYFLY) --seed $(SEED) --cells '$(CELLS)'

# Program, manual, completions and service, below PREFIX; and out of there again.
install: build
	Sources/Debian/files.sh install $(MAYFLY) $(PREFIX) $(DESTDIR)

uninstall:
	Sources/Debian/files.sh uninstall $(PREFIX) $(DESTDIR)

# The Debian package, in $(SCRATCH)/debian.
deb: build
	Sources/Debian/package.sh $(MAYFLY) $(SCRATCH)/checkouts $(SCRATCH)/debian

# The package on a machine: installed, used, upgraded and purged in a layer over this one's files, or over those of a new
# Debian: make package SUITE=trixie
.PHONY: package
SUITE ?=
COMMA = ,
ROOTS = $(abspath $(SCRATCH))/roots
package: deb
	@sh .ci/packages man-db groff-base mandoc systemd binutils $(if $(SUITE),debootstrap)
	@# 77: no mount namespaces here, which it says.
	@$(if $(SUITE),[ -d $(ROOTS)/$(SUITE)/var/lib/dpkg ] || { rm -rf $(ROOTS)/$(SUITE); debootstrap --variant=minbase \
		--include=systemd-standalone-sysusers$(COMMA)systemd-standalone-tmpfiles $(SUITE) $(ROOTS)/$(SUITE) >/dev/null; };) \
	python3 Tests/Package/package.py $(SCRATCH)/debian/*.deb $(if $(SUITE),--root $(ROOTS)/$(SUITE)) || [ $$? -eq 77 ]

.PHONY: reproducible
# The same commit in two directories makes the same package; two whole builds.
reproducible: deps
	sh Tests/Package/reproducible.sh

# Code for the tests, which compare the node with SwiftProtobuf. Needs protoc; the result is committed.
proto:
	$(SWIFT) build --scratch-path $(SCRATCH) --product protoc-gen-swift
	protoc --plugin=$(SCRATCH)/debug/protoc-gen-swift --swift_opt=Visibility=Package \
		--swift_out=Tests/FuzzTargets --proto_path=Tests/FuzzTargets Tests/FuzzTargets/mayfly.proto

clean:
	rm -rf $(SCRATCH) $(FUZZ_SCRATCH) $(COVERAGE_SCRATCH) .build-tsan .build-asan
