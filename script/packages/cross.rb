# frozen_string_literal: true

require_relative "native"

module Packages
  # Compiles the program and the worker for another system than this machine's.
  #
  # - Another processor with glibc: Debian's compiler for it. Headers, libraries, mruby and Ruby are those of a tree of the oldest release that is
  #   supported, whose C library decides where the program runs.
  # - musl: the program is static. It has no handlers on mruby, because Debian's library is of glibc; and no worker of its own for a Ruby of musl, whose
  #   headers Debian does not have: there the worker in plain Ruby serves.
  #
  # The program runs here, too: by QEMU, with the tree's C library.
  class Cross
    OLDEST = "bookworm"
    RELEASES = "#{OLDEST} trixie".freeze

    def initialize(target, profile, folder)
      raise Failure, "compiling for #{target.triple} needs root, for the trees of script/tree" unless Process.uid.zero?

      @target = target
      @profile = profile
      @folder = folder
      # No "ruby" in its path: rb-sys takes the headers below such paths for Ruby's.
      @tree = Packages.tree(named(OLDEST), *(target.musl? ? %w[musl-dev linux-libc-dev] : %w[libc6-dev]))
    end

    def triple = @target.triple

    # For cargo.
    def words = ["--target", triple]

    # Returns the program's path. Compiles it.
    def program
      Packages.run(ENV.fetch("CARGO", "cargo"), "build", "--profile", "dist", "--locked", "-p", "cli", *words, "--target-dir", @folder,
                   env: environment.merge("FIREBRICK_PACKED" => "lld", "RUSTFLAGS" => "#{ENV.fetch('RUSTFLAGS', '')} #{@profile.flags} -Cllvm-args=-addrsig"))
      File.join(@folder, triple, "dist", "firebrick")
    end

    # The worker's libraries by ABI.
    def natives
      return {} if @target.musl?

      ENV.fetch("DIST_RELEASES", RELEASES).split.to_h { |release| Native.new(release, @profile, @folder, processor: @target.architecture, cross: self).compile }
    end

    # The variables with which the program runs here.
    def run_environment = { "QEMU_LD_PREFIX" => @tree }

    # Variables for cargo, compilers written in C, and the generator of Ruby's bindings.
    def environment
      name = triple.tr("-", "_")
      {
        "CARGO_TARGET_#{name.upcase}_LINKER" => compiler, "CC_#{name}" => compiler, "AR_#{name}" => @target.tool("ar"),
        "CFLAGS_#{name}" => Paths.c.join(" "), "MRUBY_DIR" => mruby,
        "BINDGEN_EXTRA_CLANG_ARGS_#{name}" => "--target=#{@target.machine}-linux-gnu --sysroot=#{@tree}",
        # Its own sources: pkg-config knows this machine's libraries only.
        "ZSTD_SYS_USE_PKG_CONFIG" => nil
      }
    end

    private

    def named(release) = "#{release}:#{@target.architecture}"

    # The folder with the toolchain's own linker, LLVM's, which knows every processor.
    def lld
      sysroot = Packages.run("rustc", "--print", "sysroot").strip
      Dir[File.join(sysroot, "lib/rustlib/*/bin/gcc-ld")].first || raise(Failure, "#{sysroot} has no gcc-ld: reinstall the toolchain (rustup)")
    end

    # Headers of musl, of the compiler (for processors' instructions), and of the kernel. rustc brings the libraries.
    def headers
      return [] unless @target.musl?

      own = Packages.run(@target.tool("gcc"), "-print-file-name=include").strip
      folders = [File.join(@tree, "usr/include/#{@target.machine}-linux-musl"), own, File.join(@tree, "usr/include/#{@target.machine}-linux-gnu"), File.join(@tree, "usr/include")]
      ["-nostdinc", *folders.flat_map { |folder| ["-isystem", folder] }]
    end

    def mruby = @target.musl? ? nil : File.join(Packages.tree(named(OLDEST), "libmruby-dev"), "usr")

    # Returns a program that compiles and links with what the tree has.
    def compiler
      @compiler ||= Packages.script(File.join(@folder, triple, "cc"), "#{@target.tool('gcc')} --sysroot=#{@tree} -B#{lld} -fuse-ld=lld #{headers.join(' ')}")
    end
  end
end
