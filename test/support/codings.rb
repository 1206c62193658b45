# frozen_string_literal: true

# Content codings, decoded by the standard tools, so that the tests share no library with the server.

require "open3"
require "stringio"
require "zlib"

module Codings
  TOOLS = { "br" => %w[brotli --decompress --stdout], "zstd" => %w[zstd --decompress --stdout --quiet] }.freeze
  CODERS = { "br" => %w[brotli --stdout], "zstd" => %w[zstd --stdout --quiet] }.freeze

  module_function

  def installed?(coding)
    return true unless CODERS.key?(coding)

    ENV.fetch("PATH", "").split(":").any? { |dir| File.executable?(File.join(dir, CODERS[coding].first)) }
  end

  def encode(coding, bytes)
    case coding
    when "gzip" then gzip(bytes)
    when "br", "zstd" then pipe(CODERS.fetch(coding), bytes)
    else bytes
    end
  end

  # The decoded body of a response.
  def decode(response)
    case coding = response["content-encoding"]
    when nil, "identity" then response.body
    when "gzip", "x-gzip" then gunzip(response.body)
    when "br", "zstd" then pipe(TOOLS.fetch(coding), response.body)
    else raise Minitest::Assertion, "an unknown content coding #{coding.inspect}"
    end
  end

  def gzip(bytes)
    out = StringIO.new("".b)
    writer = Zlib::GzipWriter.new(out)
    writer.write(bytes)
    writer.close
    out.string
  end

  # Strict: one member, verified to its end, and nothing after it.
  def gunzip(bytes)
    reader = Zlib::GzipReader.new(StringIO.new(bytes))
    plain = reader.read.b
    raise Minitest::Assertion, "bytes after the gzip member" if reader.unused

    reader.finish
    plain
  rescue Zlib::Error => e
    raise Minitest::Assertion, "broken gzip: #{e.message}"
  end

  def pipe(command, bytes)
    out, err, status = Open3.capture3(*command, stdin_data: bytes, binmode: true)
    raise Minitest::Assertion, "#{command.first}: #{err}" unless status.success?

    out
  end
end
