# The verbs of this project; CONTRIBUTING.md says when to use which.

CARGO   ?= cargo
PORT    ?= 9292
TARGET  := $(or $(CARGO_TARGET_DIR),target)
NATIVE  := lib/firebrick/native.so

.PHONY: all build demo test lint unit e2e worker-test bench-test gem-test setup setup-test bench shootout fuzz deny docs gem clean

all: build

setup:
	@script/setup

setup-test:
	@script/setup test

# The program, and the native part of a worker where Ruby finds it.
build: setup
	$(CARGO) build --release --locked -p cli -p worker
	@cp -f $(TARGET)/release/libfirebrick_worker.so $(NATIVE).new && mv -f $(NATIVE).new $(NATIVE)

# Installs what is missing, builds, serves the Sinatra example and prints its address. One worker: the entries of the
# guestbook live in its memory.
demo: build
	$(TARGET)/release/firebrick serve examples/sinatra -p $(PORT) -w 1

# Everything that must pass. What .ci/run runs.
test: setup-test lint unit build worker-test bench-test e2e gem-test

lint: setup-test
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	rubocop --format quiet

unit: setup-test
	$(CARGO) test --workspace --exclude worker --locked

worker-test: build
	ruby ext/worker/tests/run.rb

bench-test: build
	ruby bench/test/bench_test.rb
	FIREBRICK=$(abspath $(TARGET))/release/firebrick ruby bench/test/shootout_test.rb
	FIREBRICK=$(abspath $(TARGET))/release/firebrick ruby bench/test/mruby_test.rb
	FIREBRICK=$(abspath $(TARGET))/release/firebrick ruby bench/test/deploy_test.rb

e2e: build
	FIREBRICK=$(abspath $(TARGET))/release/firebrick test/run

# Packs the gem, installs the package into an empty folder and serves an app with it.
gem-test: setup-test
	script/gem-test

gem: setup
	@mkdir -p pkg
	gem build --strict firebrick.gemspec --output pkg/firebrick.gem

bench: setup-test build
	bench/run $(SCENARIOS)

# The comparisons that people quote, side by side; about an hour, on a calm machine only. Installs the peers.
shootout: setup-test build
	FIREBRICK=$(abspath $(TARGET))/release/firebrick bench/shootout --install $(SCENARIOS)

# Five minutes of fuzzing for each target; needs a nightly toolchain and cargo-fuzz.
fuzz:
	cd fuzz && for target in $$($(CARGO) +nightly fuzz list); do $(CARGO) +nightly fuzz run $$target -- -max_total_time=300 || exit 1; done

# Licences, sources and known holes of dependencies; needs cargo-deny.
deny:
	$(CARGO) deny check

# What is generated from the table of options.
docs:
	FIREBRICK_REGENERATE=1 $(CARGO) test -q -p settings docs

clean:
	$(CARGO) clean
	rm -f $(NATIVE) pkg/*.gem
