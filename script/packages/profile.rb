# frozen_string_literal: true

require "digest"
require "tmpdir"
require_relative "build"
require_relative "paths"
require_relative "training"

module Packages
  # The profile for optimising the shipped program: how often a real load ran each function and each branch. It saves a request
  # 4 to 7 % of CPU (bench/RESULTS.md).
  #
  # 1. The program is compiled with counters, beside the other builds, and serves the loads of Training.
  # 2. `llvm-profdata`, a component of the toolchain, merges the counts of all processes.
  # 3. The profile is reused while dependencies, their compilation, toolchain and loads stay the same. Code that has changed since is
  #    compiled as without a profile; function names change with the level of optimisation. The file's name contains the digest of its
  #    content, because cargo compares flags, not the files that they name.
  class Profile
    KEY_FILES = %w[Cargo.lock Cargo.toml rust-toolchain.toml script/packages/training.rb].freeze

    # wish: a file; "new": always make one; "none": compile without; nil: reuse the existing one, or make one.
    def initialize(wish = ENV.fetch("PROFILE", nil), target: File.expand_path(ENV.fetch("CARGO_TARGET_DIR", "target"), ROOT))
      @wish = wish.to_s.empty? ? nil : wish
      @folder = File.join(target, "profile")
    end

    # The flags for rustc, words in RUSTFLAGS.
    def flags
      [*("-Cprofile-use=#{path} -Cllvm-args=-no-pgo-warn-mismatch" if path), *Paths.rust].join(" ")
    end

    # Returns the file, making it if needed; nil: without a profile.
    def path
      @path ||= case @wish
                when "none" then nil
                when "new" then make
                when nil then kept || make
                else given
                end
    end

    private

    def given
      file = File.expand_path(@wish, ROOT)
      return file if File.file?(file) && !file.match?(/\s/)

      raise Failure, "PROFILE=#{@wish}: expected a file whose path has no spaces, or new, or none"
    end

    def kept = Dir[File.join(@folder, "#{key}-*.profdata")].max_by { |file| File.mtime(file) }

    def key = @key ||= Digest::SHA256.hexdigest(KEY_FILES.map { |name| File.read(File.join(ROOT, name)) }.join)[0, 8]

    def make
      tool = merger
      Dir.mktmpdir("firebrick-profile") do |dir|
        FileUtils.mkdir_p(raw = File.join(dir, "raw"))
        warn "Compiling with counters (about as long as the program itself takes)"
        built = compile
        warn "Training: a minute of load"
        home = FileUtils.mkdir_p(File.join(dir, "home")).first
        counted = Training.new(File.join(built, "firebrick"), lib: lib(dir, built), raw: raw, home: home).run
        keep(tool, counted, File.join(dir, "merged"))
      end
    end

    # Compiles like the program itself, plus the flag: with another target, function names would differ, and no count would match.
    # Build scripts and macros then have counters, too; their counts are discarded.
    def compile
      folder = File.join(@folder, "counting")
      Packages.run(ENV.fetch("CARGO", "cargo"), "build", "--profile", "dist", "--locked", "-p", "cli", "-p", "worker",
                   "--target-dir", folder, env: { "FIREBRICK_PACKED" => "1", "RUSTFLAGS" => ["-Cprofile-generate", *Paths.rust].join(" "), "LLVM_PROFILE_FILE" => File::NULL })
      File.join(folder, "dist")
    end

    # The Ruby files, with the instrumented worker.
    def lib(dir, built)
      FileUtils.cp_r(File.join(ROOT, "worker/lib"), dir)
      File.join(dir, "lib").tap { |copy| FileUtils.cp(File.join(built, "libfirebrick_worker.so"), File.join(copy, "firebrick", "native.so")) }
    end

    def keep(tool, counted, merged)
      Packages.run(tool, "merge", "-o", merged, *counted)
      file = File.join(@folder, "#{key}-#{Digest::SHA256.file(merged).hexdigest[0, 8]}.profdata")
      FileUtils.cp(merged, file)
      file
    end

    # Finds the tool that merges counts. It must be of the compiler's release, because the format changes.
    def merger
      sysroot = Packages.run("rustc", "--print", "sysroot").strip
      tool = -> { Dir[File.join(sysroot, "lib/rustlib/*/bin/llvm-profdata")].first }
      return tool.call if tool.call

      warn "Installing llvm-tools of the toolchain"
      Packages.run("rustup", "component", "add", "llvm-tools")
      tool.call || raise(Failure, "#{sysroot} has no llvm-profdata: install the toolchain's llvm-tools, or compile with PROFILE=none")
    end
  end
end
