# The project's make targets; CONTRIBUTING.md says when to use which.

CARGO   ?= cargo
PORT    ?= 9292
TARGET  := $(or $(CARGO_TARGET_DIR),target)
NATIVE  := worker/lib/firebrick/native.so
# The stand-ins for other systems, compiled and tested on Linux.
PORTABLE := $(abspath $(TARGET))/portable
# Seconds of fuzzing per target, and the targets; all if none is named.
FUZZ_SECONDS ?= 300
FUZZ    ?=
# Plugins of installed gems (Rails has one) must not change the output of tests.
export MT_NO_PLUGINS = 1

.PHONY: all build server optimised dist dist-test demo test lint style clippy unit unit-build plots e2e worker-test bench-test chart-test docs-chart gem-test portable-test portable-unit test-debian13 test-forky test-jruby setup setup-test setup-dist bench bench-check shootout fuzz deny docs site screenshots release gem clean

all: build

setup:
	@script/setup

setup-test:
	@script/setup test

setup-dist:
	@script/setup dist

# The program, and the native part of a worker where Ruby finds it. Uses Debian's zstd, which saves half a minute of compilation; packages
# build their own.
build: setup
	ZSTD_SYS_USE_PKG_CONFIG=1 $(CARGO) build --release --locked -p cli -p worker
	@cp -f $(TARGET)/release/libfirebrick_worker.so $(NATIVE).new && mv -f $(NATIVE).new $(NATIVE)

# The build without measuring commands, which are a quarter of the work.
SERVER := ZSTD_SYS_USE_PKG_CONFIG=1 $(CARGO) build --release --locked -p cli -p worker --no-default-features --features cli/mruby

# As `build`, but without the measuring commands (folder measure): bench, tune, plan, top.
server: setup
	$(SERVER)
	@cp -f $(TARGET)/release/libfirebrick_worker.so $(NATIVE).new && mv -f $(NATIVE).new $(NATIVE)

# As `build`, but optimised as for packages: target/dist/firebrick. Takes several times as long, and twice that if there is no profile yet.
# -addrsig: see server/cli/build.rs.
optimised: setup
	@flags=$$(script/profile) && export CFLAGS="$$CFLAGS $$(script/profile c)" SOURCE_DATE_EPOCH=$$(script/profile time) && set -x && \
	  FIREBRICK_PACKED=1 RUSTFLAGS="$$RUSTFLAGS $$flags -Cllvm-args=-addrsig" $(CARGO) build --profile dist --locked -p cli -p worker
	@cp -f $(TARGET)/dist/libfirebrick_worker.so $(NATIVE).new && mv -f $(NATIVE).new $(NATIVE)

# The packages, in dist/: a tarball, a gem for this platform, a .deb, a container image. PACKAGES='deb gem' selects some.
dist: setup-dist $(if $(filter-out $(shell uname -m)-unknown-linux-gnu,$(DIST_TARGET)),,optimised)
	script/dist $(PACKAGES)

# Prepares the release VERSION: versions, changelog, packages, bill of materials, licences, checksums. Commits and publishes nothing.
release:
	script/release prepare $(VERSION)
	$(MAKE) dist gem PACKAGES='$(or $(PACKAGES),tarball gem deb)'
	cp pkg/firebrick.gem dist/firebrick-$(VERSION).gem
	script/release finish $(VERSION)

# Installs the packages of `make dist` into empty trees of Debian 12 and 13, and uses them there. Needs root.
dist-test: setup-dist
	script/package-test $(PACKAGES)

# Installs missing packages, builds, serves the Sinatra example and prints its address. One worker, because the guestbook keeps its
# entries in memory.
demo:
	@MEANWHILE='$(SERVER)' script/setup
	$(SERVER)
	@cp -f $(TARGET)/release/libfirebrick_worker.so $(NATIVE).new && mv -f $(NATIVE).new $(NATIVE)
	$(TARGET)/release/firebrick serve examples/sinatra -p $(PORT) -w 1

# Everything that must pass; .ci/run runs it. Each step prints its duration.
test:
	@MAKE='$(MAKE)' script/test

lint: style clippy

clippy: setup-test
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# The checks that compile nothing.
style: setup-test
	$(CARGO) fmt --all --check
	rubocop --format quiet

# The worker has no unit tests, but selecting it compiles the same libraries as `lint`.
unit: setup-test
	script/unit

# Only compiles the unit tests.
unit-build: setup-test
	@script/unit --no-run

# The files that test/report_pages_test.rb needs, built with the libraries of the unit tests.
plots:
	@CARGO='$(CARGO)' script/unit-cargo build --quiet --workspace --example gallery --example plot

worker-test: build
	NATIVE=$(abspath $(NATIVE)) script/worker-test

# With Debian's jruby, installed if missing (Java, 200 MB), and Debian's gems. Two servers at a time: each has one or
# two virtual machines, which use a processor for seconds to start. The apps of the other suites use syntax that is
# too new for JRuby 9.3. So CRuby serves them in the same way, with workers in plain Ruby that connect;
# and then with workers that cannot send descriptors, like TruffleRuby's.
CONNECTING_SUITES := rack_spec framing broken_apps file_bodies large_bodies content_length early_responses websocket abandoned_streams

test-jruby: build
	command -v jruby >/dev/null || script/apt-install jruby
	GEM_PATH=/usr/share/rubygems-integration/all CONNECTING_RUBY=jruby ruby worker/native/tests/run.rb connecting
	GEM_PATH=/usr/share/rubygems-integration/all RUBY=jruby MT_CPU=2 FIREBRICK=$(abspath $(TARGET))/release/firebrick test/run spawned
	for ruby in connecting_ruby streaming_ruby; do \
	  RUBY=$(abspath test/support)/$$ruby FIREBRICK=$(abspath $(TARGET))/release/firebrick test/run $(CONNECTING_SUITES) || exit 1; \
	done

bench-test: build
	FIREBRICK=$(abspath $(TARGET))/release/firebrick ruby bench/test/run.rb

# Lints and renders the chart, and checks it against the schemas of Kubernetes. Go, if installed, compiles the checker once.
chart-test: build
	FIREBRICK=$(abspath $(TARGET))/release/firebrick script/chart-test

# Updates the table of values in deploy/chart/README.md from values.yaml.
docs-chart:
	ruby -r./deploy/kube/lab/values -e Kubernetes::Values.new.write

e2e: build
	TEST_AGAIN=1 FIREBRICK=$(abspath $(TARGET))/release/firebrick test/run

# Runs the worker's and the end-to-end tests in trees of Debian 13 and of the next release, with their Ruby, Rack, mruby. Needs root.
test-debian13:
	script/test-in trixie

test-forky:
	script/test-in forky

# Compiles and tests the files named portable.rs, which replace the Linux code on other systems. Excludes tests
# that expect HTTP/3 on every thread.
PORTABLE_CRATES := control firebrick-http front load net workers quic script settings site tls tuner
PORTABLE_UNIT := $(CARGO) test --locked $(addprefix -p ,$(PORTABLE_CRATES)) --lib --tests
PORTABLE_SUITES := rack_spec framing files site_ large_bodies workers reload services upgrade https http3 mruby_handlers

portable-test: setup-test
	export RUSTFLAGS="$$RUSTFLAGS --cfg firebrick_portable" CARGO_TARGET_DIR=$(PORTABLE) FIREBRICK_LIB=$(PORTABLE)/lib \
	  NATIVE=$(PORTABLE)/debug/libfirebrick_worker.so FIREBRICK=$(PORTABLE)/debug/firebrick ZSTD_SYS_USE_PKG_CONFIG=1 && \
	$(CARGO) build --locked -p cli -p worker && \
	$(PORTABLE_UNIT) && \
	rm -rf $(PORTABLE)/lib && cp -R worker/lib $(PORTABLE)/lib && \
	ruby worker/native/tests/run.rb && \
	test/run $(PORTABLE_SUITES) --exclude '/announces|shares the UDP port/'

# Runs the unit tests of the crates with such files, compiled for this system.
portable-unit:
	$(PORTABLE_UNIT)

# Packs the gem, installs the package into an empty folder and serves an app with it.
gem-test: setup-test
	script/gem-test

gem: setup
	@mkdir -p pkg
	gem build --strict firebrick.gemspec --output pkg/firebrick.gem

bench: setup-test optimised
	FIREBRICK=$(abspath $(TARGET))/dist/firebrick bench/run $(SCENARIOS)

# Fails when a ratio is more than 10 % worse than in bench/record.json. About ten minutes, only on an idle machine.
bench-check: setup-test optimised
	FIREBRICK=$(abspath $(TARGET))/dist/firebrick bench/run --check $(SCENARIOS)

# Well-known comparisons of servers, side by side. About an hour, only on an idle machine. Installs the other servers.
shootout: setup-test optimised
	FIREBRICK=$(abspath $(TARGET))/dist/firebrick bench/shootout --install $(SCENARIOS)

# Fuzzes each target, or those in FUZZ, for FUZZ_SECONDS; needs cargo-fuzz. The pinned toolchain is sufficient: RUSTC_BOOTSTRAP
# lets it use the sanitizer's flags, which are otherwise reserved for nightly. Libraries have the versions of the program.
fuzz:
	cp Cargo.lock fuzz/Cargo.lock
	cd fuzz && for target in $(or $(FUZZ),$$($(CARGO) fuzz list)); do \
	  RUSTC_BOOTSTRAP=1 nice -n 19 $(CARGO) fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

# Checks licences, sources and duplicate versions of dependencies, and known vulnerabilities if their database can be fetched.
# Needs cargo-deny.
deny:
	$(CARGO) deny check bans licenses sources
	@if $(CARGO) deny fetch db; then \
	  $(CARGO) deny --offline check advisories; \
	else \
	  echo "Known vulnerabilities were NOT checked: the advisory database cannot be fetched from here." >&2; \
	fi

# Updates generated documents: docs/settings.md from the table of options, tables of docs/stats.md and docs/metrics.md from that of figures, docs/mruby-waiting.md from its test's table, and
# the column "used by" of ARCHITECTURE.md's code map.
docs:
	FIREBRICK_REGENERATE=1 $(CARGO) test -q -p settings docs
	FIREBRICK_REGENERATE=1 $(CARGO) test -q -p stats docs
	FIREBRICK_REGENERATE=1 $(CARGO) test -q -p script --test it waiting
	FIREBRICK_REGENERATE=1 $(CARGO) test -q -p cli --test house

# The documentation as a site with a search: firebrick serve target/site.
site: setup-test
	script/site $(TARGET)/site

# The pictures in docs/images, by the real program and Chromium. Needs tmux and aha.
screenshots: build
	FIREBRICK=$(abspath $(TARGET))/release/firebrick script/screenshots

clean:
	$(CARGO) clean
	rm -f $(NATIVE) pkg/*.gem
