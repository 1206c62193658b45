# frozen_string_literal: true

# Buffering of responses for slow clients: memory and files keep to their limits, and a full disk does not affect the client.

require "support/case"
require "support/other_clients"

RESPONSE_ROOM_APP = <<~'RUBY'
  text = { "content-type" => "application/octet-stream" }
  large = ("0123456789abcdef" * 320_000).freeze
  run lambda { |env|
    case env["PATH_INFO"]
    when "/array" then [200, text.dup, [large]]
    when "/parts" then [200, text.dup, large.scan(/.{64000}/)]
    when "/each"
      body = Object.new
      body.define_singleton_method(:each) { |&block| 80.times { |n| block.call(large.byteslice(n * 64_000, 64_000)) } }
      [200, text.dup, body]
    else [200, text.dup, ["quick"]]
    end
  }
RUBY

class ResponseRoomTest < Case
  parallel!

  include OtherClients

  LARGE = ("0123456789abcdef" * 320_000).freeze

  # Total size of the memory files that the server's processes have open, in bytes; each file counts once.
  def memory_files(server)
    files = Processes.tree(server.pid).flat_map { |process| Dir["/proc/#{process.pid}/fd/*"] }.filter_map do |fd|
      [File.stat(fd).ino, File.stat(fd).blocks * 512] if File.readlink(fd).include?("memfd:firebrick-body")
    rescue SystemCallError
      nil
    end
    files.uniq.sum(&:last)
  end

  def slow_readers(server, path, count)
    Array.new(count) { connect(server, receive_buffer: 8192, deadline: 60).write(request("GET", path)) }.each do |connection|
      assert_status 200, connection.read_head
    end
  end

  def finish_reading(connection, length = LARGE.bytesize)
    body = +"".b
    body << connection.read_exactly([1 << 20, length - body.bytesize].min) while body.bytesize < length
    assert_equal LARGE.b, body
  end

  %w[/array /parts].each do |path|
    it "keeps #{path} of twenty slow readers out of memory" do
      firebrick_only
      own = start(threads: "1:1", app: RESPONSE_ROOM_APP, settings: { limits: { response_memory: 64 << 10 } })
      readers = slow_readers(own, path, 20)
      assert_others_served "the app is free", to: own
      assert_operator memory_files(own), :<=, 20 * (64 << 10)
      readers.each { |connection| finish_reading(connection) }
    end

    it "makes the app wait with #{path} when neither memory nor file may hold it" do
      firebrick_only
      limits = { response_memory: 64 << 10, response_spool: 256 << 10 }
      own = start(threads: "1:3", app: RESPONSE_ROOM_APP, settings: { limits: limits })
      readers = slow_readers(own, path, 2)
      assert_others_served "a third thread is free", to: own
      assert_equal 0, memory_files(own)
      readers.each { |connection| finish_reading(connection) }
    end
  end

  # A disk of one megabyte; skips the test if it cannot be mounted.
  def full_disk
    Dir.mktmpdir do |dir|
      skip "needs root and mount" unless system("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", dir, err: File::NULL)
      begin
        yield dir
      ensure
        system("umount", "-l", dir)
      end
    end
  end

  %w[/array /parts /each].each do |path|
    it "sends #{path} completely when the temporary disk is full" do
      firebrick_only
      full_disk do |dir|
        own = start(threads: "1:3", app: RESPONSE_ROOM_APP, env: { "TMPDIR" => dir }, settings: { limits: { response_memory: 64 << 10 } })
        readers = slow_readers(own, path, 2)
        assert_others_served "a third thread is free", to: own
        assert_equal(0, memory_files(own)) unless path == "/each"
        chunked = path == "/each"
        readers.each { |connection| chunked ? read_chunks(connection) : finish_reading(connection) }
      end
    end
  end

  def read_chunks(connection)
    body = +"".b
    while (size = connection.read_through("\r\n").to_i(16)).positive?
      body << connection.read_exactly(size)
      connection.read_through("\r\n")
    end
    assert_equal LARGE.b, body
  end
end
