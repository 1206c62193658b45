# frozen_string_literal: true

# `firebrick profile`: samples of the workers of a running server, with states and lines; its page, its files for other tools.

require "json"
require "open3"
require "support/browser_case"
require "support/case"
require "support/visits"

PROFILE_APP = <<~'RUBY'
  require "digest/sha2" # With its library: the first digest would load it, by a frame that has its path as name and file.

  LOCK = Mutex.new
  BIG = "x" * (4 << 20)

  def over?(seconds, from) = Process.clock_gettime(Process::CLOCK_MONOTONIC) - from >= seconds

  def hot
    from = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    sum = 0
    sum += 1 until over?(0.05, from) # hot line
    sum
  end

  def hash_big
    Digest::SHA256.digest(BIG) # hash line
  end

  def nap
    sleep 0.1 # nap line
  end

  def wait_for_lock
    LOCK.synchronize { sleep 0.05 } # lock line
  end

  def read_pipe
    reader, writer = IO.pipe
    Thread.new { sleep 0.1; writer.close }
    reader.read # read line
  ensure
    reader.close
  end

  def collect
    3.times { GC.start } # gc line
  end

  WORK = { "/hot" => :hot, "/hash" => :hash_big, "/nap" => :nap, "/lock" => :wait_for_lock, "/read" => :read_pipe, "/gc" => :collect }.freeze

  run lambda { |env|
    path = env["PATH_INFO"]
    env["firebrick.route"] = "work##{path.delete_prefix('/')}" unless path == "/nap"
    Process.kill(:KILL, Process.pid) if path == "/die"
    method = WORK[path] and send(method)
    sleep 0.4 if env["QUERY_STRING"] == "slow"
    [200, { "content-type" => "text/plain" }, ["ok"]]
  }
RUBY

# The line of the app with a comment.
PROFILE_LINE = PROFILE_APP.lines.each_with_index.filter_map { |line, at| [line[/# (\w+) line/, 1], at + 1] if line =~ /# \w+ line/ }.to_h

# A profile of --format json, to be asked.
class TakenProfile
  attr_reader :document

  def initialize(file)
    @document = JSON.parse(File.read(file))
  end

  # The microseconds of samples with this state that were on a line of the app: on top, or in a function in C that it had called.
  def at(line, state: nil)
    sum { |stack, own_state| (state.nil? || own_state == state) && own_line(stack) == line }
  end

  def sum
    samples.sum { |stack, state, request, us| yield(stack, state, request) ? us : 0 }
  end

  def states(line)
    samples.each_with_object(Hash.new(0)) { |(stack, state, _, us), sums| sums[state] += us if own_line(stack) == line }
  end

  # The names of the frames of a stack, the innermost first.
  def names(stack)
    each_place(stack).map { |frame, _| frame["name"] }
  end

  def samples = document["samples"]

  def workers = document["workers"]

  def requests = document["requests"]

  private

  def own_line(stack)
    each_place(stack).find { |frame, _| frame["file"] }.then { |frame, line| line if frame && frame["file"] == "config.ru" }
  end

  def each_place(stack)
    Enumerator.new do |places|
      while stack
        parent, frame, line = document["stacks"][stack]
        places << [document["frames"][frame], line]
        stack = parent
      end
    end
  end
end

# Load while a profile is taken.
module Profiles
  include Visits

  # Takes a profile; returns it and what was printed.
  def profile(own, *words, time: "2s")
    out, err, code = own.command_line("profile", time, own.dir, "--out", saved, *words)
    assert_equal 0, code, err
    [TakenProfile.new(saved), out]
  end

  # A file of the test, away from the server's folders.
  def saved(name = "profile.json")
    @folder ||= Dir.mktmpdir("profile")
    File.join(@folder, name)
  end

  def after_teardown
    FileUtils.rm_rf(@folder) if @folder
    super
  end

  # Reads the saved profile, with other options.
  def read_again(own, *words) = own.command_line("profile", own.dir, "--from", saved, *words)
end

class ProfileTest < Case
  # Its load takes all processors.
  in_turn!

  include Profiles

  def before_setup
    super
    firebrick_only
    skip "profiles need CRuby with the native part" if !Server.cruby? || ENV["FIREBRICK_PURE"] == "1"
  end

  def launch(threads: "6:6", **options) = start(app: PROFILE_APP, threads: threads, **options)

  def assert_mostly(state, profile, line, share = 0.7)
    states = profile.states(PROFILE_LINE.fetch(line))
    assert_operator states.values.sum, :>, 0, "no samples on the #{line} line: #{profile.samples.length} samples"
    assert_operator states[state], :>=, share * states.values.sum, "#{line}: #{states}"
  end

  it "names the line and the state of each kind of work, and who waits for it" do
    own = launch
    taken, text = under_load(own, "/nap", "/lock", "/lock", "/read") { profile(own, "--format", "json") }
    assert_mostly "sleep", taken, "nap"
    assert_mostly "io", taken, "read"
    # One sleeps while it has the lock, the other waits for it.
    states = taken.states(PROFILE_LINE["lock"])
    assert_operator states["lock"], :>, 0.2 * states.values.sum, states.to_s
    assert_operator states["sleep"], :>, 0.2 * states.values.sum, states.to_s
    assert_empty text.lines.grep(/stack is unknown/)
    shares = read_again(own, "--format", "text").first.scan(/^ *([\d.]+) % (?:runs|sleeps|collects garbage|waits .*)$/).map { |(share)| Float(share) }
    assert_operator shares.size, :>, 2
    assert_equal shares.sort.reverse, shares, "the state that takes the most time is named first"

    in_hot = ->(of, wanted) { of.sum { |stack, state| state == wanted && stack && of.names(stack).any? { |name| name.end_with?("hot") } } }
    busy = nil
    # On a busy machine the C extension may hardly run.
    3.times do
      busy, = under_load(own, "/hot", "/hot", "/hot", "/hash", "/hash") { profile(own, "--format", "json") }
      break if in_hot[busy, "gvl"].positive?
    end
    # The C extension keeps the GVL, so the others wait.
    hash = busy.sum { |stack, state| state == "runs" && stack && busy.names(stack).any? { |name| name.include?("digest") } }
    assert_operator hash, :>, 0, "the function in C is named"
    assert_empty busy.document["frames"].select { |frame| frame["file"] && frame["name"].match?(/digest|update|sleep/) }, "functions in C have no file"
    assert_operator in_hot[busy, "runs"], :>, 0
    assert_operator in_hot[busy, "gvl"], :>, 0, "the hot method waits for the GVL behind the C extension"
  end

  it "sees the collector, and functions in C that run" do
    own = launch(threads: "2:2")
    taken, = under_load(own, "/gc") { profile(own, "--format", "json") }
    assert_mostly "gc", taken, "gc", 0.5
    taken, = under_load(own, "/hash") { profile(own, "--format", "json", time: "1s") }
    assert_mostly "runs", taken, "hash", 0.5
  end

  it "counts processor time instead" do
    own = launch
    taken, text = under_load(own, "/hot", "/nap", "/nap") { profile(own, "--cpu", "--format", "json") }
    assert_equal "cpu", taken.document["clock"]
    hot = taken.sum { |stack, _| stack && taken.names(stack).any? { |name| name.end_with?("hot") } }
    assert_operator hot, :>, 0.8 * taken.sum { true }, text
    assert_operator hot, :<, 1.3 * 1e6 * taken.document["seconds"], "one processor at most"
  end

  it "keeps routes and times of requests, so that they can be chosen afterwards" do
    own = launch
    under_load(own, "/nap", "/nap?slow", "/lock", "/read") { profile(own, "--format", "json") }
    route = saved("route.json")
    out, err, code = read_again(own, "--route", "work#lock", "--out", route)
    assert_equal 0, code, err
    chosen = TakenProfile.new(route)
    refute_empty chosen.samples
    assert_equal ["work#lock"], chosen.samples.map { |_, _, request, _| chosen.requests[request]["route"] }.uniq, out
    assert_operator chosen.at(PROFILE_LINE["lock"]), :>, 0
    slowest = saved("slowest.json")
    assert_equal 0, read_again(own, "--slowest", "5%", "--out", slowest).last
    slow = TakenProfile.new(slowest)
    numbers = slow.samples.map { |row| row[2] }.uniq
    chosen, others = slow.requests.select { |one| one["ms"] }.partition.with_index { |one, _| numbers.include?(slow.requests.index(one)) }
    assert_operator chosen.map { |one| one["ms"] }.min, :>=, others.map { |one| one["ms"] }.max
    assert_operator chosen.length, :<=, 1 + (0.05 * slow.workers.sum { |worker| worker["requests"] })
    # The name of the path serves where the app has no name.
    _, err, code = read_again(own, "--route", "GET /nap", "--format", "text")
    assert_equal 0, code, err
    _, err, code = read_again(own, "--route", "none")
    assert_equal 1, code
    assert_match(/none of the \d+ requests .* routes: .*work#lock/, err)
  end

  it "writes files for speedscope and pprof" do
    own = launch(threads: "3:3")
    taken, = under_load(own, "/hot", "/nap") { profile(own, "--format", "json") }
    scope = saved("x.speedscope.json")
    assert_equal 0, read_again(own, "--out", scope).last
    document = JSON.parse(File.read(scope))
    assert_equal "https://www.speedscope.app/file-format-schema.json", document["$schema"]
    frames = document["shared"]["frames"]
    assert(frames.all? { |frame| frame["name"].is_a?(String) })
    document["profiles"].each do |one|
      assert_equal %w[sampled microseconds 0], one.values_at("type", "unit", "startValue").map(&:to_s)
      assert_equal one["samples"].length, one["weights"].length
      assert_equal one["weights"].sum, one["endValue"]
      assert(one["samples"].flatten.all? { |at| at.between?(0, frames.length - 1) })
    end
    assert_equal taken.sum { true }, document["profiles"][0]["endValue"]
    pprof = saved("x.pb")
    assert_equal 0, read_again(own, "--out", pprof).last
    skip "go is not installed" unless system("go", "version", out: File::NULL, err: File::NULL)
    top, err, status = Open3.capture3({ "PPROF_TMPDIR" => @folder, "GOPROXY" => "off" }, "go", "tool", "pprof", "-top", "-lines", pprof)
    skip "go has no pprof" if err.include?("no such tool")
    assert_predicate status, :success?, err
    assert_match(/Type: wall/, top)
    assert_match(/nap config\.ru:#{PROFILE_LINE['nap']}/, top.gsub("Object#", ""))
  end

  it "compares two profiles" do
    own = launch(threads: "3:3")
    under_load(own, "/nap") { profile(own, "--format", "json", time: "1s") }
    before = saved("before.json")
    FileUtils.mv(saved, before)
    under_load(own, "/hot") { profile(own, "--format", "json", time: "1s") }
    text, err, code = read_again(own, "--diff", before, "--format", "text")
    assert_equal 0, code, err
    assert_match(/sleeps \(-[1-9]/, text)
    assert_match(/runs \(\+[1-9]/, text)
  end

  it "goes on when a worker dies, and says so" do
    own = launch(workers: 2, threads: "2:2")
    taken, text = under_load(own, "/nap", "/nap", "/nap") do
      killer = Thread.new { sleep 1 and get("/die", to: own) }
      profile(own, "--format", "json", time: "3s").tap { killer.join }
    end
    assert_equal 1, taken.workers.count { |worker| !worker["complete"] }, taken.workers.to_s
    # The worker that follows takes part.
    assert_equal 3, taken.workers.length, taken.workers.to_s
    assert_match(/not complete.*pid/, text)
    assert_mostly "sleep", taken, "nap"
    assert_status 200, get("/hot", to: own)
  end

  it "takes one profile at a time, and frees it when the client goes" do
    own = launch
    first = UNIXSocket.new(Dir[File.join(own.run_dir, "firebrick", "*.sock")].first)
    first.write("POST /profile?seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert_match(/ 200 /, first.gets, "it answers when the profile has begun")
    under_load(own, "/nap") do
      _, err, code = own.command_line("profile", "1s", own.dir, "--format", "text")
      assert_equal 1, code
      assert_match(/another profile is being taken/, err)
      first.close
      wait_until("the end of the first") { own.command_line("profile", "300ms", own.dir, "--format", "text").last.zero? }
    end
  end

  it "refuses what it does not know, and says why there is nothing" do
    own = launch
    [["soon", own.dir], ["1ms"], ["11m"], ["--hz", "0"], ["--hz", "1001"], ["--slowest", "0%"], ["--slowest", "many"], ["--path", "("],
     ["--format", "svg"], ["--out", "profile.xyz"], ["--wall", "--cpu"], ["1s", "--from", "x.json"]].each do |words|
      _, err, code = own.command_line("profile", *words)
      assert_equal 2, code, "#{words}: #{err}"
      assert_match(/#{Regexp.escape(words.last.delete_prefix('--'))}|--from|expected/, err, words.to_s)
    end
    _, err, code = own.command_line("profile", "200ms", own.dir)
    assert_equal [1, true], [code, err.include?("served no requests")], err
    refute_path_exists own.path("firebrick-profile.html")
    File.write(saved("wrong.json"), "{}")
    _, err, code = own.command_line("profile", own.dir, "--from", saved("wrong.json"))
    assert_equal [1, true], [code, err.include?("wrong.json: ")], err
    _, err, code = own.command_line("profile", own.temp_dir)
    assert_equal 1, code, err
    head, = own.control_response("/profile")
    assert_match(/405/, head)
  end

  it "says what a worker in plain Ruby lacks" do
    own = launch(env: { "FIREBRICK_PURE" => "1" })
    _, err, code = under_load(own, "/nap") { own.command_line("profile", "1s", own.dir, "--format", "text") }
    assert_equal 1, code
    assert_match(/no worker can take a profile: .*plain Ruby.*native part/, err)
    assert_status 200, get("/nap", to: own)
  end

  it "knows the lines of fibers, of the one that runs and of those that wait" do
    own = start(app: PROFILE_APP, settings: { fibers: 20 }, threads: "1:1")
    taken, = under_load(own, "/hot", "/nap", "/nap", "/read") { profile(own, "--format", "json") }
    hot = taken.sum { |stack, state| state == "runs" && stack && taken.names(stack).any? { |name| name.end_with?("hot") } }
    assert_operator hot, :>, 0.1 * taken.sum { true }
    assert_mostly "sleep", taken, "nap"
    assert_mostly "io", taken, "read"
  end
end

class ProfilePageTest < BrowserCase
  include Profiles

  it "shows a flame graph that is searched, filtered and zoomed by keyboard, and loads nothing" do
    own = start(app: PROFILE_APP, threads: "6:6")
    file = saved("page.html")
    out, err, code = under_load(own, "/hot", "/nap", "/lock", "/lock", "/read") do
      own.command_line("profile", "2s", own.dir, "--out", file)
    end
    assert_equal 0, code, err
    assert_includes out, file
    page = open_page(width: 1200, height: 1000)
    page.goto("file://#{file}")
    picture(page, "profile")
    assert_empty page.console
    assert_equal 1, page.requests.length, page.requests.map(&:to_s).to_s
    texts = -> { page.evaluate("[...document.querySelectorAll('#flame .box')].map((box) => box.textContent)") }
    assert(texts.call.any? { |text| text.end_with?("nap") }, texts.call.to_s)
    assert_match(/config\.ru:#{PROFILE_LINE['nap']}/, page.text("#lines"))
    page.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', { key: '/' }))")
    assert_equal "search", page.evaluate("document.activeElement.id")
    page.type("nap")
    assert_match(/[1-9]\d* found, \d/, page.text("#found"))
    page.evaluate("document.querySelector('#flame .found').focus()")
    press = ->(key) { page.evaluate("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: #{JSON.generate(key)}, bubbles: true }))") }
    all = texts.call.length
    press.call("Enter")
    assert_operator texts.call.length, :<, all
    assert_equal "100%", page.evaluate("document.activeElement.style.width")
    press.call("ArrowDown")
    assert_match(/sleep/, page.text("#detail"))
    20.times { press.call("Escape") }
    assert_equal all, texts.call.length
    page.evaluate("(() => { const route = document.getElementById('route'); route.value = 'work#lock'; route.dispatchEvent(new Event('change')); })()")
    assert(texts.call.none? { |text| text.end_with?("nap") }, texts.call.to_s)
    # At 400 % zoom the page is as wide as a telephone.
    narrow = open_page(width: 320, height: 800, scheme: "dark")
    narrow.goto("file://#{file}")
    picture(narrow, "profile-narrow")
    assert_operator narrow.evaluate("document.documentElement.scrollWidth"), :<=, 320
    assert_empty narrow.console
  end

  def picture(page, name)
    folder = ENV.fetch("TEST_SCREENSHOTS", nil) or return
    page.screenshot(File.join(folder, "#{name}.png"))
  end
end
