# frozen_string_literal: true

# Files that a site must not serve: outside the root, hidden, special.

require "support/site_files_case"

class SiteFilesAccessTest < SiteFilesCase
  # --- paths that try to leave the root

  ["/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/%2e%2e%2fsecret.txt", "/dir/../../secret.txt", "/dir/%2e%2e/%2e%2e/secret.txt", "/..%5csecret.txt", "/..\\secret.txt", "/....//secret.txt", "//../secret.txt",
   "/./../secret.txt", "/%252e%252e/secret.txt", "/dir/..%00/../../secret.txt", "/../public_html_secret/secret.txt", "/%c0%ae%c0%ae/secret.txt", "/.%2e/secret.txt", "/%2e./secret.txt", "/..;/secret.txt", "/dir/..;/..;/secret.txt",
   "/%uff0e%uff0e/secret.txt", "/\u2025/secret.txt".b, "/..%252fsecret.txt", "/.../secret.txt", "/up/secret.txt", "/out.txt", "/absolute.txt", "/chain.txt", "/out-dir/secret.txt", "/text.txt/../../secret.txt",
   "/missing/../../secret.txt", "/../../../../../../../../etc/hostname", "/passwd.txt", "/proc.txt"].each do |path|
    it "does not leave the root by #{path.dump[1..-2]}" do
      response = get(path)
      assert_status accepted([400, 404], 301, 403), response
      refute_includes response.body, "outside"
      refute_includes response.body, File.read("/etc/hostname").strip
      refute_includes response.body, "PATH="
    end
  end

  it "does not leave the root by a target without a slash or with a host" do
    ["secret.txt", "../secret.txt", "http://example.test/../secret.txt", "http://example.test/%2e%2e/secret.txt", "file:///etc/hostname"].each do |target|
      refute_includes ask("GET #{target} HTTP/1.1\r\nHost: example.test\r\n\r\n").body, "outside", target
    end
  end

  it "follows symbolic links inside the root, or none" do
    response = get("/inside-link.txt")
    assert_status accepted(200, 403, 404), response
    assert_equal TEXT, response.body if response.status == 200
  end

  it "responds with 403 or 404 to broken and circular links" do
    assert_status accepted(404, 403), get("/loop.txt")
    assert_status accepted(404, 403), get("/broken-link.txt")
  end

  ["/.hidden", "/%2ehidden", "/%2Ehidden", "/.env", "/.git/config", "/.git%2fconfig", "/.git", "/.git/", "/dir/.htaccess", "/dir/.svn/entries", "/dir/../.hidden", "//.hidden", "/./.hidden", "/.well-known/../.env", "/..dots.txt"].each do |path|
    it "hides #{path}" do
      assert_hidden get(path), "hidden"
    end
  end

  it "does not read devices and sockets" do
    assert_status accepted(404, 403), get("/dev.txt")
    assert_status accepted(404, 403), get("/socket.txt")
  end

  it "does not wait for a FIFO" do
    own = another_site(files: { "public_html/text.txt" => TEXT }, prepare: ->(dir) { File.mkfifo(File.join(dir, "public_html/fifo.txt")) })
    waiting = connect(own)
    waiting.write(request("GET", "/fifo.txt"))
    assert_equal TEXT, get("/text.txt", to: own).body
    assert_status accepted(404, 403), waiting.read_response
  end

  it "responds with 403 or 404 to files and directories that it may not read" do
    skip "root may read everything" if Process.uid.zero?

    { "locked.txt" => :file, "locked-dir/inside.txt" => :dir }.each do |name, kind|
      FileUtils.mkdir_p(File.dirname(root(name)))
      File.write(root(name), "locked")
      File.chmod(0o000, kind == :dir ? File.dirname(root(name)) : root(name))
      assert_hidden get("/#{name}"), "locked"
    ensure
      File.chmod(0o700, File.dirname(root(name)))
    end
  end
end
