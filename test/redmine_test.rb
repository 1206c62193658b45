# frozen_string_literal: true

# Redmine from Debian's package, with SQLite and with PostgreSQL: `firebrick` in its folder has to serve the same responses as Puma to
# a logged-in user. Both have separate instances with the same content, and get the same requests in the same order.

require "support/case"
require "support/postgresql"
require "support/redmine/pages"
require "support/redmine/server"
require "support/redmine/visitor"

class RedmineTest < Case
  in_turn!

  # Fields that describe the server or this one response; the value of Set-Cookie is encrypted.
  OWN_FIELDS = %w[date server connection keep-alive x-request-id x-runtime set-cookie].freeze
  # With PostgreSQL these are enough, because the same code makes the pages.
  SOME_PAGES = ["/my/page", "/projects/works/activity?from=2024-03-06", "/projects/works/issues", "/issues/1", "/projects/works/issues/gantt?year=2024&month=3&months=3",
                "/projects/works/wiki", "/search?q=kiln&issues=1&wiki_pages=1&messages=1", "/boards/1/topics/1", "/issues/1.pdf", "/issues.json?limit=100&status_id=*"].freeze
  # The age of an object that the test has made.
  AGE = %r{<a title="\d\d/\d\d/20(?!24)\d\d [^"]*" href="[^"]*">[^<]*</a>}n
  # The choice of a format of times or dates, shown by the time of the page.
  NOW = /(<option [^>]*value="%[^"]*">)[^<]*/n

  @servers = []
  @instances = []

  # Two servers with the same content, users logged in to both, and path => responses of pages that were fetched before
  # any change.
  Pair = Struct.new(:instances, :servers, :visitors, :pages)

  class << self
    # Both are made at first use: most of the time goes into loading Redmine, in separate processes.
    def pair(kind)
      @pairs ||= { sqlite: Thread.new { make_pair(sqlite_instances, Redmine::PAGES) }, postgresql: Thread.new { make_pair(postgresql_instances, SOME_PAGES) if Postgresql.programs } }
      @pairs.fetch(kind).value
    end

    # A server with the files of examples/redmine, and an instance of its own.
    def cached
      @cached ||= begin
        pair(:sqlite)
        copy = @instances.first.copy.tap { |made| @instances << made }
        Redmine::Cached.new(copy).tap { |server| @servers << server }.start
      end
    end

    def over(reporter)
      super
      # The tests that wanted a pair which could not be made have failed with its error.
      @pairs.to_h.each_value { |pair| finished?(pair) }
    ensure
      ended = @servers.to_a.map { |server| Thread.new { server.finish } }.flat_map(&:value)
      @instances.to_a.each(&:remove)
      @cluster&.finish
      raise ended.join("\n") unless ended.empty?
    end

    private

    def finished?(thread)
      thread.join
    rescue StandardError, Minitest::Assertion
      false
    end

    def make_pair(instances, pages)
      servers = [Redmine::Puma.new(instances[0]), Redmine::Firebrick.new(instances[1])]
      @servers.concat(servers)
      servers.map { |server| Thread.new { server.start } }.each(&:join)
      visitors = servers.map { |server| Redmine::Visitor.new(server.address).tap(&:log_in) }
      Pair.new(instances, servers, visitors, pages.to_h { |page| [page, visitors.map { |visitor| visitor.get(page) }] })
    end

    def sqlite_instances
      first = instance
      first.build
      [first, first.copy.tap { |other| @instances << other }]
    end

    def postgresql_instances
      @cluster = Postgresql.new.start
      first = instance(@cluster.create("puma"))
      first.build
      [first, first.copy(@cluster.create("firebrick", template: "puma")).tap { |other| @instances << other }]
    end

    def instance(database = nil)
      Redmine::Instance.new(database).tap { |made| @instances << made }
    end
  end

  def before_setup
    super
    skip "Redmine 5 is not installed (script/setup test)" unless Redmine.installed?
    skip "compares Firebrick with Puma already" if Server.puma?
    @visitors = []
  end

  def after_teardown
    @visitors&.each(&:close)
    super
  end

  # Sends the request to both servers, one after the other.
  def both(kind = :sqlite, &question)
    self.class.pair(kind).visitors.map(&question)
  end

  # Visitors that are not logged in, one for each server.
  def strangers
    self.class.pair(:sqlite).servers.map { |server| Redmine::Visitor.new(server.address).tap { |one| @visitors << one } }
  end

  # Returns Firebrick's response, after comparing it with Puma's.
  def assert_same_response(what, responses)
    puma, firebrick = responses
    assert_equal puma.status, firebrick.status, "#{what}\n#{firebrick.raw_head}#{masked(firebrick)[0, 2000]}"
    expected, found = responses.map { |response| fields(response) }
    assert_equal expected, found, what
    expected, found = responses.map { |response| masked(response) }
    assert expected == found, "#{what}: #{difference(expected, found)}"
    firebrick
  end

  # Fields that have to be equal. The ETag of a page with a token differs like the token.
  def fields(response)
    kept = response.headers.map { |name, value| [name.downcase, value] }.reject { |name, _| OWN_FIELDS.include?(name) }
    kept.reject! { |name, _| name == "etag" } unless masked(response) == response.body
    # The time in a picture is compressed, so its length varies.
    kept.reject! { |name, _| name == "content-length" } if response["content-type"].to_s.start_with?("image/png") && masked(response) != response.body
    # Firebrick compresses what a client accepts, and says so.
    kept.reject! { |name, value| name == "vary" && value == "Accept-Encoding" }
    cookies = response.all("set-cookie").map { |cookie| cookie.sub(/=[^;]*/, "") }
    (kept + cookies.map { |cookie| ["set-cookie", cookie] }).sort
  end

  # Removes CSRF tokens, Redmine's random names of forms, and the creation time of a document.
  def masked(response)
    body = response.body.b
    case response["content-type"]
    when %r{\Atext/html} then body.gsub(/(<meta name="csrf-token" content=|name="authenticity_token" value=|data-authenticity-token=)"[^"]*"/n, '\1""').gsub(/ name="[\w-]*-\h{8}"/n, "").gsub(AGE, "").gsub(NOW, '\1')
    when %r{\Aapplication/(?:json|xml)} then body.gsub(/20(?!24)\d\d-\d\d-\d\dT[\d:]{8}Z/n, "")
    when %r{\Aapplication/pdf} then body.gsub(/\(D:\d{14}[^)]*\)/n, "()")
    when %r{\Aimage/png} then without_time(body)
    else body
    end
  end

  # Removes the time from a PNG: a chunk consists of its length, its name, its content and a checksum.
  def without_time(png)
    at = 8
    while (head = png.byteslice(at, 8)) && head.bytesize == 8
      size = head.unpack1("N") + 12
      %w[tIME tEXt].include?(head.byteslice(4, 4)) ? png = png.byteslice(0, at) + png.byteslice((at + size)..) : at += size
    end
    png
  end

  def difference(expected, found)
    pairs = expected.lines.zip(found.lines)
    at = pairs.index { |one, other| one != other }
    at ? "line #{at + 1}\nPuma:      #{pairs[at][0].inspect[0, 600]}\nFirebrick: #{pairs[at][1].inspect[0, 600]}" : "Firebrick sends #{found.bytesize - expected.bytesize} bytes more"
  end

  # An error, or an incomplete page, would be equal on both servers.
  def assert_page(path, response)
    assert_equal 200, response.status, "#{path}\n#{response.raw_head}"
    refute_empty response.body, path
    assert_match(/Logged in as/, response.body) if response["content-type"].start_with?("text/html")
  end

  # All pages are compared, so that one run shows every difference.
  def assert_same_pages(pages)
    faults = pages.filter_map do |path, responses|
      assert_page(path, assert_same_response(path, responses)) && nil
    rescue Minitest::Assertion => e
      e.message
    end
    assert faults.empty?, faults.join("\n\n")
  end

  it "serves 50 pages as under Puma" do
    pages = self.class.pair(:sqlite).pages
    assert_equal 50, pages.size
    assert_same_pages(pages)
  end

  it "serves the same pages from PostgreSQL" do
    skip "PostgreSQL is not installed (script/setup test)" unless Postgresql.programs
    assert_same_pages(self.class.pair(:postgresql).pages)
    created = both(:postgresql) { |visitor| visitor.post_form("/projects/works/issues/new", "/projects/works/issues", ISSUE) }
    assert_equal "http://redmine.example/issues/61", assert_same_response("a new issue", created)["location"]
    assert_page("/issues/61", assert_same_response("/issues/61", both(:postgresql) { |visitor| visitor.get("/issues/61") }))
  end

  it "sends uploaded files whole, in parts and not at all" do
    Redmine::DOWNLOADS.each do |path|
      whole = assert_same_response(path, both { |visitor| visitor.get(path) })
      assert_equal 200, whole.status, path
      # Each server makes its own thumbnail, which contains the time.
      unless path.include?("thumbnail")
        head = assert_same_response("HEAD #{path}", both { |visitor| visitor.request("HEAD", path) })
        assert_equal [200, ""], [head.status, head.body]
      end

      # Redmine reads the file itself, and sends it whole.
      %w[bytes=0-9 bytes=100- bytes=-7 bytes=99999999- bytes=0-1,5-6 lines=1-2].each do |range|
        assert_same_response("#{path} #{range}", both { |visitor| visitor.get(path, "Range" => range) })
      end
      assert_same_response("#{path}, kept", both { |visitor| visitor.get(path, "If-None-Match" => whole["etag"].to_s) }) unless path.include?("thumbnail")
    end
  end

  it "sends the files of public/" do
    Redmine::ASSETS.each do |path|
      puma, firebrick = both { |visitor| visitor.get(path) }
      assert_equal [200, puma.body], [firebrick.status, firebrick.body], path
      # The front adds the charset of a text.
      type = ->(response) { response["content-type"][/\A[^;]+/].sub("vnd.microsoft.icon", "x-icon").sub("application/javascript", "text/javascript") }
      assert_equal type[puma], type[firebrick], path
      assert_equal puma["last-modified"], firebrick["last-modified"], path
    end
  end

  ISSUE = { "issue[tracker_id]" => "1", "issue[subject]" => "Smoke \u{1F525} & <ash>", "issue[description]" => "It *smokes*.", "issue[status_id]" => "1", "issue[priority_id]" => "2",
            "issue[start_date]" => "2024-05-06" }.freeze

  it "takes forms" do
    created = both { |visitor| visitor.post_form("/projects/works/issues/new", "/projects/works/issues", ISSUE) }
    assert_equal [302, "http://redmine.example/issues/61"], [created[1].status, assert_same_response("a new issue", created)["location"]]
    # The message kept in the session is shown once.
    page = both { |visitor| visitor.get("/issues/61") }.map { |response| response.body.b.force_encoding("UTF-8") }
    page.each { |body| assert_includes body, "Smoke \u{1F525} &amp; &lt;ash&gt;" }
    page.each { |body| assert_includes body, 'id="flash_notice"' }
    both { |visitor| visitor.get("/issues/61") }.each { |response| refute_includes response.body, 'id="flash_notice"' }

    noted = both { |visitor| visitor.post_form("/issues/61", "/issues/61", "_method" => "patch", "issue[notes]" => "Ash *everywhere*") }
    assert_equal 302, assert_same_response("a note", noted).status
    refused = both { |visitor| visitor.post_form("/projects/works/issues/new", "/projects/works/issues", ISSUE.merge("issue[subject]" => "")) }
    assert_includes assert_same_response("a form that is not complete", refused).body, "Subject cannot be blank"
    # A search sent by GET, with characters of two alphabets.
    assert_same_response("a search", both { |visitor| visitor.get("/search?q=#{CGI.escape('Smöke фire')}&issues=1") })
  end

  it "takes a file that is uploaded" do
    content = (0..255).to_a.pack("C*") * 2000
    uploaded = both { |visitor| visitor.upload("/issues/20", "/uploads.js?attachment_id=1&filename=b%C3%A4ren.bin&content_type=application%2Foctet-stream", content) }
    tokens = uploaded.map { |response| response.body[/\d+\.\h{32,}/] }
    assert_equal [200, 200], uploaded.map(&:status), self.class.pair(:sqlite).instances[1].log.lines.last(12).join
    both { |visitor| visitor }.zip(tokens).each do |visitor, token|
      fields = { "_method" => "patch", "issue[notes]" => "A file", "attachments[1][filename]" => "bären.bin", "attachments[1][token]" => token }
      assert_equal 302, visitor.post_form("/issues/20", "/issues/20", fields).status
    end
    id = both { |visitor| visitor.get("/issues/20.json?include=attachments").json["issue"]["attachments"].last["id"] }.uniq
    assert_equal 1, id.size
    downloaded = assert_same_response("the file", both { |visitor| visitor.get("/attachments/download/#{id[0]}/b%C3%A4ren.bin") })
    assert_equal content, downloaded.body.b
    multipart = both { |visitor| visitor.post_multipart("/issues/21", "/issues/21", { "_method" => "patch", "issue[notes]" => "Within" }, "attachments[dummy][file]" => ["a b.txt", "text/plain", "fire\n" * 30_000]) }
    assert_equal 302, assert_same_response("a form with a file", multipart).status
    assert_equal ["a b.txt"], both { |visitor| visitor.get("/issues/21.json?include=attachments").json["issue"]["attachments"].map { |one| one["filename"] } }.flatten.uniq
  end

  it "refuses what has no token, or a wrong one" do
    # Redmine then ends the session.
    [{}, { "authenticity_token" => "wrong" }].each do |fields|
      visitors = strangers.each { |one| one.log_in("ben", "Ben-secret-1") }
      refused = visitors.map { |one| one.post("/projects/works/issues", ISSUE.merge(fields)) }
      assert_equal 422, assert_same_response("a form with #{fields}", refused).status
      assert_equal([302, 302], visitors.map { |one| one.get("/my/page").status })
    end
  end

  it "logs out, and in" do
    guests = strangers
    each = ->(what, &block) { assert_same_response(what, guests.map(&block)) }
    assert_equal 302, each.call("/my/page") { |guest| guest.get("/my/page") }.status
    assert_equal 200, each.call("a wrong password") { |guest| guest.log_in("admin", "wrong") }.status
    assert_equal 302, each.call("a login") { |guest| guest.log_in("ada", "Ada-secret-1") }.status
    assert_match(/Logged in as/, each.call("/my/page") { |guest| guest.get("/my/page") }.body)
    assert_equal 403, each.call("/admin") { |guest| guest.get("/admin") }.status
    assert_equal 404, each.call("/issues/4711") { |guest| guest.get("/issues/4711") }.status
    assert_equal 302, each.call("a logout", &:log_out).status
    assert_equal 302, each.call("/my/page") { |guest| guest.get("/my/page") }.status
  end

  it "keeps pages of visitors with the example's initializer, and nobody else's" do
    own = self.class.cached
    guest, other, user = Array.new(3) { Redmine::Visitor.new(own.address).tap { |one| @visitors << one } }
    page = "/projects/works/issues"
    first = guest.get(page)
    assert_equal ["Firebrick; fwd=uri-miss; stored", nil], [first["cache-status"], first["set-cookie"]]
    kept = other.get(page)
    assert_match(/\AFirebrick; hit/, kept["cache-status"])
    assert_equal first.body, kept.body
    user.log_in("ada", "Ada-secret-1")
    assert_match(/Logged in as/, user.get(page).body)
    assert_match(/\AFirebrick; fwd=.*detail=private/, user.get(page)["cache-status"])
    refute_match(/Logged in as/, other.get(page).body)
    # The form to log in has a token of the visitor's session.
    tokens = Array.new(2) { Redmine::Visitor.new(own.address).tap { |one| @visitors << one }.get("/login")["set-cookie"] }
    assert_equal 2, tokens.compact.uniq.size
  end

  it "repeats pages behind the login before a reload, with the example's initializer" do
    own = self.class.cached
    user = Redmine::Visitor.new(own.address).tap { |one| @visitors << one }
    user.log_in("ada", "Ada-secret-1")
    # The most frequent requests are repeated first, and a busy machine does not come to the others.
    20.times { assert_match(/Logged in as/, user.get("/my/page").body) }
    out, err, code = own.command_line("reload", own.dir)
    assert_equal 0, code, -> { out + err }
    lines = own.instance.log.lines
    warm = lines.grep(/\[warm-up\]/)
    assert(warm.any? { |line| line.match?(%r{Started GET "/my/page"}) }, warm.join)
    assert(warm.any? { |line| line.include?("Current user: admin (id=1)") }, warm.join)
    assert_match(/Logged in as.*ada/m, user.get("/my/page").body)
    assert_equal 302, Redmine::Visitor.new(own.address).tap { |one| @visitors << one }.get("/my/page", "firebrick.warmup" => "1", "Firebrick-Warmup" => "1").status
  end

  it "has the API" do
    key = { "X-Redmine-API-Key" => "a" * 40, "Content-Type" => "application/json" }
    programs = strangers
    ask = ->(method, path, headers = key, body = nil) { assert_same_response("#{method} #{path}", programs.map { |one| one.request(method, path, headers, body) }) }
    assert_equal 401, ask.call("GET", "/users.json", {}).status
    assert_equal 200, ask.call("GET", "/users.json").status
    created = ask.call("POST", "/time_entries.json", key, JSON.generate("time_entry" => { "issue_id" => 5, "hours" => 2, "spent_on" => "2024-04-01", "activity_id" => 8, "comments" => "lit" })).status
    assert_includes [201, 422], created
    assert_equal 204, ask.call("PUT", "/issues/30.json", key, JSON.generate("issue" => { "subject" => "By PUT" })).status
    assert_equal 204, ask.call("DELETE", "/issues/59.json").status
    assert_equal 404, ask.call("GET", "/issues/59.json").status
    assert_equal 422, ask.call("POST", "/issues.json", key, "{}").status
    assert_equal 400, ask.call("POST", "/issues.json", key, "{").status
    basic = { "Authorization" => "Basic #{['admin:admin-secret'].pack('m0')}" }
    assert_equal 200, ask.call("GET", "/users/current.xml", basic).status
  end
end
