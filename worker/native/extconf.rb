# frozen_string_literal: true

# Writes a Makefile with which cargo builds the worker's library and the program, and puts them where worker/lib looks.

require "mkmf"

cargo = ENV["CARGO"] || find_executable("cargo")
abort "firebrick is built from source and needs Rust: https://rustup.rs, then gem install firebrick again" unless cargo

root = File.expand_path("../..", __dir__)
library = RUBY_PLATFORM.include?("darwin") ? "libfirebrick_worker.dylib" : "libfirebrick_worker.so"
target = ENV["CARGO_TARGET_DIR"] || File.join(root, "target")

# An installed program is optimised fully, which takes minutes. FIREBRICK_PROFILE=release takes a third of that.
profile = ENV.fetch("FIREBRICK_PROFILE", "dist")
# cargo's name for the folder of the profile "dev".
built = profile == "dev" ? "debug" : profile

# An installed gem keeps only the built files, not half a gigabyte of intermediate files.
own_target = target == File.join(root, "target") && !File.exist?(File.join(root, ".git"))
tidy = own_target ? 'rm -rf "$(TARGET)"' : "@true"

File.write("Makefile", <<~MAKEFILE)
  ROOT = #{root}
  TARGET = #{target}
  CARGO = #{cargo}
  RUBY = #{RbConfig.ruby}
  DESTDIR =
  sitearchdir = #{RbConfig::CONFIG['sitearchdir']}

  all:
  \tcd "$(ROOT)" && RUBY="$(RUBY)" CARGO_PROFILE_DIST_STRIP=true CARGO_PROFILE_DIST_DEBUG=false "$(CARGO)" build --profile #{profile} --locked --target-dir "$(TARGET)" -p worker -p cli
  \tmkdir -p "$(ROOT)/libexec"
  \tcp "$(TARGET)/#{built}/#{library}" "$(ROOT)/worker/lib/firebrick/native.#{RbConfig::CONFIG['DLEXT']}"
  \tcp "$(TARGET)/#{built}/firebrick" "$(ROOT)/libexec/firebrick"

  install:
  \tmkdir -p "$(DESTDIR)$(sitearchdir)/firebrick"
  \tcp "$(ROOT)/worker/lib/firebrick/native.#{RbConfig::CONFIG['DLEXT']}" "$(DESTDIR)$(sitearchdir)/firebrick/"
  \t#{tidy}

  clean:
  \t#{tidy}
MAKEFILE
