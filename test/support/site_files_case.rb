# frozen_string_literal: true

# The base of the tests of static files: a directory with many kinds of files, links and names, served from public_html/.
# It may also be served by a peer (TEST_SERVER=nginx, h2o); support/peers.rb has their configurations.
#
# nginx 1.22 fails six of 303: Allow in a 405; If-Match before If-Unmodified-Since; If-None-Match before If-Modified-Since; an
# invalid If-Unmodified-Since; the connection after a 412; a socket's file (500). H2O 2.2.5 fails 66: If-Match, If-Unmodified-Since
# and If-Range altogether, lists and weak tags in If-None-Match, obsolete date formats, q-values, dot files, links out of the
# root, a FIFO.

require "support/site_case"
require "support/conditions"

class SiteFilesCase < SiteCase
  parallel!

  TEXT = "0123456789" * 100
  LARGE = Random.new(3).bytes(3_000_000)
  SCRIPT = (1..800).map { |i| "export const value#{i} = #{i * 7919 % 1000};\n" }.join
  PIXELS = "\x89PNG\r\n\x1A\n".b + "\0" * 8000
  MISSING_PAGE = "<h1>nothing here</h1>"
  WRITTEN = Time.utc(2020, 2, 29, 12, 34, 56)
  CAFE_NFC = "caf\u00e9.txt"
  CAFE_NFD = "cafe\u0301.txt"
  LONG_NAME = "#{'n' * 251}.txt".freeze

  PAGES = {
    "index.html" => "<p>home", "page.html" => "<p>page", "text.txt" => TEXT, "style.css" => "a{}", "code.js" => "1", "data.json" => "{}", "image.svg" => "<svg/>",
    "image.png" => "\x89PNG".b, "photo.jpg" => "\xFF\xD8".b, "font.woff2" => "wOF2", "data.xml" => "<a/>", "code.wasm" => "\0asm", "icon.ico" => "\0\0\1\0", "film.mp4" => "ftyp",
    "paper.pdf" => "%PDF-", "UPPER.HTML" => "<p>upper", "archive.tar.gz" => "\x1F\x8B".b, "picture.webp" => "RIFF", "app.webmanifest" => "{}", "module.mjs" => "2",
    "empty.txt" => "", "large.bin" => LARGE, "no-extension" => "?", "CamelCase.txt" => "camel",
    "dir/index.html" => "<p>dir", "dir/inside.txt" => "inside", "dir/deep/deeper/text.txt" => "deep", "noindex/inside.txt" => "inside",
    "with space/index.html" => "<p>space dir", "caf\u00e9/index.html" => "<p>cafe dir", "what?/index.html" => "<p>what dir", "50%/index.html" => "<p>half", "evil.test/index.html" => "<p>dir, not host",
    "with space.txt" => "space", "quote'\".txt" => "quote", "plus+.txt" => "plus", "plus .txt" => "no plus", "what?.txt" => "question", "hash#tag.txt" => "hash", "50%.txt" => "percent",
    "semi;colon.txt" => "semicolon", "a&b=c.txt" => "ampersand", "a:b.txt" => "colon", "~tilde.txt" => "tilde", "back\\slash.txt" => "backslash", "%41.txt" => "percent forty-one", "A.txt" => "letter",
    CAFE_NFC => "composed", CAFE_NFD => "decomposed", "\u65e5\u672c.txt" => "japan", "\u{1f9f1}.txt" => "brick", LONG_NAME => "long",
    "..dots.txt" => "hidden", "dots...txt" => "dots too", "index.txt" => "no index",
    "script.js" => SCRIPT, "small.css" => "a{color:red}", "pixels.png" => PIXELS,
    "side.css" => "as it is #{'.' * 600}", "three.css" => "as it is #{'.' * 600}", "brotli.css" => "as it is #{'.' * 600}",
    ".hidden" => "hidden", ".env" => "hidden", ".git/config" => "hidden", "dir/.htaccess" => "hidden", "dir/.svn/entries" => "hidden", ".well-known/security.txt" => "contact",
    "errors/404.html" => MISSING_PAGE
  }.freeze

  # Each side-car's content names its coding, so that a test knows which one it got.
  def self.side_car(coding)
    Codings.installed?(coding) ? Codings.encode(coding, "from the #{coding} side-car") : "not installed"
  end

  PREPARE = lambda do |dir|
    root = File.join(dir, "public_html")
    { "side.css.gz" => "gzip", "three.css.gz" => "gzip", "three.css.br" => "br", "three.css.zst" => "zstd", "brotli.css.br" => "br" }.each do |name, coding|
      File.binwrite(File.join(root, name), side_car(coding))
    end
    FileUtils.mkdir(File.join(root, "empty-dir"))
    FileUtils.mkdir(File.join(root, "line\r\nbreak: x"))
    File.write(File.join(root, "line\r\nbreak: x", "index.html"), "<p>break")
    # The path of a socket must be short, and the threads share the current directory.
    File.open(root) { |folder| UNIXServer.new("/proc/self/fd/#{folder.fileno}/socket.txt").close }
    { "inside-link.txt" => "text.txt", "loop.txt" => "loop.txt", "broken-link.txt" => "missing", "out.txt" => "../secret.txt", "absolute.txt" => File.join(dir, "secret.txt"),
      "out-dir" => "../private", "passwd.txt" => "/etc/hostname", "up" => "..", "chain.txt" => "dir/chain.txt", "dir/chain.txt" => "../../secret.txt", "dev.txt" => "/dev/zero",
      "proc.txt" => "/proc/self/environ" }.each { |name, target| File.symlink(target, File.join(root, name)) }
    Dir.glob("**/*", base: root).each { |name| File.lutime(WRITTEN, WRITTEN, File.join(root, name)) }
    File.truncate(File.join(root, "huge.bin").tap { |name| FileUtils.touch(name) }, 5 << 30)
  end

  shared_site prepare: PREPARE, rules: { root: "public_html/", error_page: "errors/404.html" },
              files: PAGES.transform_keys { |name| "public_html/#{name}" }.merge("secret.txt" => "outside", "private/secret.txt" => "outside", "public_html_secret/secret.txt" => "outside")

  def root(name)
    server.path(File.join("public_html", name))
  end

  def validators(path = "/text.txt")
    Validators.of(get(path))
  end

  def coded(path, accept)
    get(path, headers: { "Accept-Encoding" => accept })
  end

  # Returns the block's result; nil when the connection ended early.
  def whole_or_nil
    yield
  rescue TruncatedResponse
    nil
  end
end
