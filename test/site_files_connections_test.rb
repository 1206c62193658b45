# frozen_string_literal: true

# Static files on slow, pipelined and interrupted connections.

require "support/site_files_case"

class SiteFilesConnectionsTest < SiteFilesCase
  it "sends 100 MiB unchanged" do
    block = Random.new(7).bytes(1 << 20)
    digest = Digest::SHA256.new
    File.open(root("hundred.bin"), "wb") { |file| 100.times { |i| piece = block.sub(/\A.{8}/mn, [i].pack("Q")) and digest << piece and file << piece } }
    connection = connect
    connection.write(request("GET", "/hundred.bin"))
    length = Integer(connection.read_head["content-length"])
    seen = Digest::SHA256.new
    while length.positive?
      piece = connection.read_some
      length -= piece.bytesize
      seen << piece
    end
    assert_equal 0, length
    assert_equal digest.hexdigest, seen.hexdigest
    assert_alive connection, "/text.txt"
  end

  it "responds to pipelined requests in order" do
    paths = { "/text.txt" => TEXT, "/dir/" => "<p>dir", "/empty.txt" => "", "/missing" => MISSING_PAGE, "/page.html" => "<p>page", "/large.bin" => LARGE }
    connection = connect
    targets = paths.keys.cycle.first(60)
    connection.write(targets.map { |path| request("GET", path) }.join)
    targets.each { |path| assert paths[path] == connection.read_response.body, path }
    assert connection.silent?
  end

  it "responds to pipelined requests that arrive in single bytes" do
    connection = connect
    connection.write_slowly(request("GET", "/text.txt") + request("HEAD", "/text.txt") + request("GET", "/page.html"))
    assert_equal TEXT, connection.read_response.body
    connection.read_response("HEAD")
    assert_equal "<p>page", connection.read_response.body
  end

  it "keeps a connection open for responses of every kind" do
    tag = validators.etag
    connection = connect
    3.times do
      [["/text.txt", {}, 200], ["/text.txt", { "If-None-Match" => tag }, 304], ["/missing", {}, 404], ["/text.txt", { "Range" => "bytes=5000-" }, 416], ["/text.txt", { "Range" => "bytes=1-2" }, 206],
       ["/text.txt", { "If-Match" => '"x"' }, 412], ["/dir", {}, 301]].each do |path, headers, status|
        connection.write(request("GET", path, headers))
        assert_status status, connection.read_response
      end
    end
    assert connection.silent?
  end

  it "serves others while a client reads slowly" do
    slow = connect(receive_buffer: 4096)
    slow.write(request("GET", "/large.bin"))
    slow.read_head
    10.times { assert_equal TEXT, get("/text.txt").body }
    assert_equal LARGE[0, 1000], slow.read_exactly(1000)
  end

  it "serves many large files concurrently" do
    clients = Array.new(20) { connect.write(request("GET", "/large.bin")) }
    clients.each { |client| assert LARGE == client.read_response.body }
  end

  it "survives clients that disconnect midway" do
    20.times do
      connection = connect(receive_buffer: 4096)
      connection.write(request("GET", "/large.bin"))
      connection.read_exactly(500)
      connection.reset!
    end
    assert_equal TEXT, get("/text.txt").body
  end
end
