# frozen_string_literal: true

# Static files that change, between requests and while they are sent.

require "support/site_files_case"

class SiteFilesChangesTest < SiteFilesCase
  it "serves new content at once, even of the same size within the same second" do
    path = root("changing-1.txt")
    200.times do |i|
      content = format("content %03d", i)
      File.write(path, content)
      assert_equal content, get("/changing-1.txt").body
    end
  end

  it "sends a new validator for new content" do
    path = root("changing-2.txt")
    File.write(path, "first")
    first = get("/changing-2.txt")
    File.write(path, "second!")
    second = get("/changing-2.txt", headers: { "If-None-Match" => first["etag"] })
    assert_equal "second!", second.body
    refute_equal first["etag"], second["etag"]
  end

  it "serves a replaced file at once" do
    path = root("changing-3.txt")
    50.times do |i|
      File.write("#{path}.next", format("content %03d", i))
      File.utime(WRITTEN, WRITTEN, "#{path}.next")
      File.rename("#{path}.next", path)
      assert_equal format("content %03d", i), get("/changing-3.txt").body
    end
  end

  it "notices at once that files appear and disappear" do
    path = root("changing-4.txt")
    20.times do
      assert_status 404, get("/changing-4.txt")
      File.write(path, "here")
      assert_equal "here", get("/changing-4.txt").body
      File.delete(path)
      settle
    end
  end

  it "notices that a file becomes a directory and back" do
    path = root("changing-5")
    3.times do
      File.write(path, "a file")
      assert_equal "a file", get("/changing-5").body
      File.delete(path)
      settle
      FileUtils.mkdir(path)
      File.write(File.join(path, "index.html"), "a directory")
      assert_redirect "/changing-5/", get("/changing-5")
      assert_equal "a directory", get("/changing-5/").body
      FileUtils.rm_r(path)
      settle
    end
  end

  it "compresses new content at once" do
    path = root("changing-6.js")
    30.times do |i|
      content = format("let x = %03d;\n", i) * 200
      File.write(path, content)
      assert_equal content, Codings.decode(coded("/changing-6.js", "gzip"))
    end
  end

  it "notices at once that a directory's index appears and disappears" do
    FileUtils.mkdir(root("changing-7"))
    3.times do
      assert_status accepted(404, 403), get("/changing-7/")
      File.write(root("changing-7/index.html"), "index")
      assert_equal "index", get("/changing-7/").body
      File.delete(root("changing-7/index.html"))
      settle
    end
  end

  # Requests within 100 µs share one check of the disk; a client on the same machine can be that fast.
  def settle
    sleep 0.001
  end

  # Reads the head and the beginning of a file of 40 MB, changes it in the block, reads on. Returns the bytes and whether they were complete.
  def changed_while_sent(name)
    content = Random.new(name.sum).bytes(1 << 20) * 40
    File.binwrite(root(name), content)
    connection = connect(receive_buffer: 65_536)
    connection.write(request("GET", "/#{name}"))
    response = connection.read_head
    assert_equal content.bytesize.to_s, response["content-length"]
    got = connection.read_exactly(10_000)
    yield root(name), content
    rest = whole_or_nil { connection.read_exactly(content.bytesize - got.bytesize) }
    [content, got + (rest || connection.buffered), !rest.nil?, connection]
  end

  it "closes the connection when a file shrinks while it is sent, and sends no other bytes" do
    content, got, whole, connection = changed_while_sent("shrinking.bin") { |path| File.truncate(path, 4 << 20) }
    refute whole, "the removed end cannot have been sent"
    assert connection.ended?
    assert content.start_with?(got), "the received bytes are the file's beginning"
  end

  it "sends the announced length when a file grows while it is sent" do
    content, got, whole, connection = changed_while_sent("growing.bin") { |path| File.write(path, "more" * 100_000, mode: "ab") }
    assert whole
    assert_equal content, got
    assert_alive connection, "/text.txt"
  end

  it "sends the old file completely when it is replaced" do
    content, got, whole, connection = changed_while_sent("replaced.bin") do |path|
      File.write("#{path}.next", "new")
      File.rename("#{path}.next", path)
    end
    assert whole
    assert_equal content, got
    assert_alive connection, "/text.txt"
    assert_equal "new", get("/replaced.bin").body
  end

  it "completes a file that is deleted while it is sent" do
    content, got, whole, = changed_while_sent("deleted.bin") { |path| File.delete(path) }
    assert whole
    assert_equal content, got
    assert_status 404, get("/deleted.bin")
  end
end
