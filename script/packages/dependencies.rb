# frozen_string_literal: true

require "digest"
require "json"
require_relative "build"

module Packages
  # The libraries that are in the packages: the crates that the program and the worker are linked with, as `cargo metadata` resolves them for
  # this platform, without those of tests and build scripts; and the C libraries that are in crates or are linked from Debian.
  class Dependencies
    ROOTS = %w[cli worker].freeze
    # C libraries within crates: the crate, and where its version is found: in the crate's version, or in a file of its sources.
    BUNDLED = {
      "zstd-sys" => ["zstd", "BSD-3-Clause", nil, /\+zstd\.([\d.]+)/],
      "aws-lc-sys" => ["aws-lc", "ISC AND (Apache-2.0 OR ISC) AND OpenSSL", "**/include/openssl/base.h", /AWSLC_VERSION_NUMBER_STRING "([\d.]+)"/],
      "libmimalloc-sys" => ["mimalloc", "MIT", "**/include/mimalloc.h", /MI_MALLOC_VERSION\s+(\d+)/]
    }.freeze
    MRUBY = "/usr/include/mruby/version.h"

    Crate = Struct.new(:id, :name, :version, :license, :folder, :checksum, :repository, :uses, keyword_init: true) do
      def purl = "pkg:cargo/#{name}@#{version}"
    end
    # +within+: the crate that has its sources; nil: linked from the system.
    Library = Struct.new(:name, :version, :license, :within, :purl, keyword_init: true)

    # Crates of crates.io, by name and version.
    def crates = @crates ||= reached.values.select(&:checksum).sort_by { |crate| [crate.name, crate.version] }

    # Ids of the crates that the program itself uses directly or through its own crates.
    def direct = own.flat_map { |crate| crate.uses.map { |id| reached.fetch(id) } }.select(&:checksum).uniq.sort_by(&:purl)

    def libraries = @libraries ||= [*bundled, mruby].compact

    # The crates that +crate+ uses.
    def used_by(crate) = crate.uses.map { |id| reached.fetch(id) }.select(&:checksum).sort_by(&:purl)

    private

    def own = reached.values.reject(&:checksum)

    def metadata
      @metadata ||= JSON.parse(Packages.run(ENV.fetch("CARGO", "cargo"), "metadata", "--format-version", "1", "--locked", "--filter-platform", Target.new.triple)[/^\{.*/])
    end

    def checksums
      @checksums ||= File.read(File.join(ROOT, "Cargo.lock")).scan(/^name = "(.*)"\nversion = "(.*)"\nsource = ".*"\nchecksum = "(\h+)"/).to_h { |name, version, sum| [[name, version], sum] }
    end

    def reached
      @reached ||= begin
        packages = metadata["packages"].to_h { |package| [package["id"], package] }
        nodes = metadata["resolve"]["nodes"].to_h { |node| [node["id"], node] }
        waiting = packages.values.select { |package| package["source"].nil? && ROOTS.include?(package["name"]) }.map { |package| package["id"] }
        found = {}
        while (id = waiting.shift)
          next if found[id]

          found[id] = crate(packages.fetch(id), linked(nodes.fetch(id), packages))
          waiting.concat(found[id].uses)
        end
        found
      end
    end

    # Procedural macros run in the compiler; nothing of them is linked.
    def linked(node, packages)
      used = node["deps"].select { |dep| dep["dep_kinds"].any? { |kind| kind["kind"].nil? } }.map { |dep| dep["pkg"] }
      used.reject { |id| packages.fetch(id)["targets"].any? { |target| target["kind"].include?("proc-macro") } }
    end

    def crate(package, uses)
      name, version = package.values_at("name", "version")
      Crate.new(id: package["id"], name: name, version: version, license: package["license"]&.tr("/", "|")&.gsub("|", " OR "), folder: File.dirname(package["manifest_path"]),
                checksum: checksums[[name, version]], repository: package["repository"], uses: uses)
    end

    def bundled
      crates.filter_map do |crate|
        name, license, file, pattern = BUNDLED[crate.name]
        next unless name

        text = file ? Dir[File.join(crate.folder, file)].sort.lazy.map { |path| File.read(path) }.find { |source| source.match?(pattern) } : crate.version
        version = text&.slice(pattern, 1) or raise Failure, "the version of #{name} is not in #{crate.folder}: change script/packages/dependencies.rb"
        # 20302 is 2.3.2.
        version = version.unpack("a1a2a2").map(&:to_i).join(".") if version.match?(/\A\d{5}\z/)
        Library.new(name: name, version: version, license: license, within: crate, purl: "pkg:generic/#{name}@#{version}")
      end
    end

    def mruby
      return if Target.new.musl? || !File.exist?(MRUBY)

      numbers = File.read(MRUBY).scan(/#define MRUBY_RELEASE_(?:MAJOR|MINOR|TEENY) (\d+)/).flatten
      Library.new(name: "mruby", version: numbers.join("."), license: "MIT", within: nil, purl: "pkg:generic/mruby@#{numbers.join('.')}")
    end
  end
end
