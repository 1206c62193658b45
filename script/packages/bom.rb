# frozen_string_literal: true

require "digest"
require "json"
require "time"
require_relative "dependencies"

module Packages
  # The bill of materials (SBOM) in CycloneDX 1.5: what is in the packages. The same sources give the same bytes.
  class Bom
    def initialize(version, time, dependencies = Dependencies.new)
      @version = version
      @time = time
      @dependencies = dependencies
    end

    def to_h
      body = { "metadata" => { "timestamp" => Time.at(@time).utc.iso8601, "component" => firebrick }, "components" => components, "dependencies" => edges }
      { "bomFormat" => "CycloneDX", "specVersion" => "1.5", "serialNumber" => serial(body), "version" => 1 }.merge(body)
    end

    def to_s = "#{JSON.pretty_generate(to_h)}\n"

    private

    def main = "pkg:github/firebrick-rb/firebrick@v#{@version}"

    def firebrick
      { "type" => "application", "bom-ref" => main, "name" => "firebrick", "version" => @version, "purl" => main, "licenses" => [{ "license" => { "id" => "MIT" } }] }
    end

    def components = @dependencies.crates.map { |crate| component(crate) } + @dependencies.libraries.map { |library| part(library) }

    def component(crate)
      { "type" => "library", "bom-ref" => crate.purl, "name" => crate.name, "version" => crate.version, "scope" => "required", "purl" => crate.purl,
        "hashes" => [{ "alg" => "SHA-256", "content" => crate.checksum }], "licenses" => [{ "expression" => crate.license }],
        "externalReferences" => crate.repository ? [{ "type" => "vcs", "url" => crate.repository }] : nil }.compact
    end

    def part(library)
      { "type" => "library", "bom-ref" => library.purl, "name" => library.name, "version" => library.version, "scope" => "required", "purl" => library.purl,
        "licenses" => [{ "expression" => library.license }] }
    end

    def edges
      libraries = @dependencies.libraries
      linked = libraries.reject(&:within).map(&:purl)
      [{ "ref" => main, "dependsOn" => @dependencies.direct.map(&:purl) + linked }] +
        @dependencies.crates.map do |crate|
          { "ref" => crate.purl, "dependsOn" => @dependencies.used_by(crate).map(&:purl) + libraries.select { |library| library.within == crate }.map(&:purl) }
        end + libraries.map { |library| { "ref" => library.purl, "dependsOn" => [] } }
    end

    # Follows from the content.
    def serial(body)
      digest = Digest::SHA256.hexdigest(JSON.generate(body))
      "urn:uuid:#{digest[0, 8]}-#{digest[8, 4]}-5#{digest[13, 3]}-8#{digest[17, 3]}-#{digest[20, 12]}"
    end
  end
end
