# frozen_string_literal: true

# Tests of the bench: parsing, accounting and clean-up. Run: ruby bench/test/bench_test.rb
require "minitest/autorun"
require "rack"
require "tmpdir"
require_relative "../lib/options"
require_relative "../lib/program"
require_relative "../lib/report"

class CommandTest < Minitest::Test
  def test_placeholders_are_filled_in
    words = Bench::Server.command("s -p {port} -t {threads}:{threads} '{dir}'", port: 1, dir: "/a b", shape: [2, 5])
    assert_equal ["s", "-p", "1", "-t", "5:5", "/a b"], words
  end

  def test_puma_runs_single_with_one_worker_and_preloads_with_more
    one = Bench::Server.command("p -w {cluster} {preload}", port: 1, dir: ".", shape: [1, 5])
    ten = Bench::Server.command("p -w {cluster} {preload}", port: 1, dir: ".", shape: [10, 5])
    assert_equal [%w[p -w 0], %w[p -w 10 --preload]], [one, ten]
  end

  def test_an_unknown_placeholder_is_named_with_the_known_ones
    error = assert_raises(Bench::Failure) { Bench::Server.command("s {prot}", port: 1, dir: ".", shape: [1, 1]) }
    assert_match(/\{prot\}.*\{port\}/, error.message)
  end
end

# Rules for all tools, also for those that are added later.
class ToolsTest < Minitest::Test
  FOLDER = File.expand_path("..", __dir__)
  TOOLS = Dir[File.join(FOLDER, "*")].select { |path| File.file?(path) && File.executable?(path) && File.open(path, &:gets).to_s.include?("ruby") }

  def test_the_program_is_found_in_one_way
    finders = Dir[File.join(FOLDER, "**/*")].select { |path| File.file?(path) && File.binread(path).match?(/ENV(\.fetch\(|\[)"FIREBRICK"/) }
    assert_equal [File.join(FOLDER, "lib/program.rb")], finders - [File.expand_path(__FILE__)]
  end

  def test_rows_appear_when_they_are_measured
    assert_operator TOOLS.size, :>, 15
    assert_empty(TOOLS.reject { |path| File.read(path).include?("$stdout.sync = true") }.map { |path| File.basename(path) })
  end

  def test_a_relative_path_of_the_program_is_that_of_the_current_folder
    before = ENV.fetch("FIREBRICK", nil)
    ENV["FIREBRICK"] = "some/firebrick"
    assert_equal File.expand_path("some/firebrick"), Bench::Program.path
    assert_raises(Bench::Failure) { Bench::Program.built }
  ensure
    ENV["FIREBRICK"] = before
  end
end

class OptionsTest < Minitest::Test
  def test_rounds_are_few_for_quick_and_check
    rounds = [%w[], %w[quick], %w[--check], %w[--rounds 4 quick]].map { |words| Bench::Options.new(words).rounds }
    assert_equal [9, 3, 5, 4], rounds
  end

  def test_scenarios_are_chosen_by_pattern
    assert_equal %w[page-64 page-200 page-browser page-ab], Bench::Options.new(%w[page-*]).scenarios.map(&:name)
  end

  def test_the_sweep_is_measured_by_name_only
    refute(Bench::Options.new([]).scenarios.any? { |one| one.name.start_with?("sweep-") })
    assert_equal 7, Bench::Options.new(%w[sweep-io-*]).scenarios.size
  end

  def test_invalid_arguments_are_refused
    [%w[nosuch], %w[--server x], %w[--rounds 0], %w[--shape 2], %w[--without nosuch], %w[--without firebrick], %w[--record --check],
     %w[--record --shape 1x1], %w[--check --server a=b]].each do |words|
      assert_raises(Bench::Failure, words.join(" ")) { Bench::Options.new(words) }
    end
  end
end

class PeersTest < Minitest::Test
  # Options with only these programs installed.
  def options(words, programs, env = {})
    Dir.mktmpdir do |dir|
      programs.each { |program| FileUtils.touch(File.join(dir, program)) && FileUtils.chmod(0o755, File.join(dir, program)) }
      path = ENV.fetch("PATH")
      ENV["PATH"] = dir
      yield Bench::Options.new(words, env: env)
    ensure
      ENV["PATH"] = path
    end
  end

  def servers(options) = options.scenarios.to_h { |one| [one.name, options.servers_for(one).keys] }

  def test_missing_programs_are_left_out_and_noted_once
    options(%w[static-page-* static-large-4], %w[nginx]) do |options|
      assert_equal({ "static-page-64" => %w[firebrick nginx], "static-page-200" => %w[firebrick nginx],
                     "static-large-4" => %w[firebrick nginx] }, servers(options))
      assert_equal ["h2o was not found: install it (Debian: apt-get install h2o); left out: h2o of static-page-64, h2o of static-page-200"],
                   options.notes
    end
  end

  def test_proxies_without_a_backend_are_left_out_entirely
    options(%w[proxy-64], []) do |options|
      assert_equal({ "proxy-64" => [] }, servers(options))
      assert_match(/\Anginx was not found.*left out: .*backend of proxy-64\z/, options.notes.join("|"))
    end
  end

  def test_peers_are_left_out_by_name
    options(%w[--without h2o static-page-64], %w[nginx h2o]) do |options|
      assert_equal({ "static-page-64" => %w[firebrick nginx] }, servers(options))
      assert_empty options.notes
    end
  end

  def test_apps_have_their_peers_and_the_servers_of_the_command_line
    words = ["--server", "second=puma -p {port}", "--without", "unicorn", "page-ab"]
    options(words, %w[puma], "IODINE" => "puma iodine") { |options| assert_equal({ "page-ab" => %w[firebrick puma iodine second] }, servers(options)) }
  end

  def test_iodine_is_named_by_its_variable_and_missed_without
    options(%w[hello-5000], []) do |options|
      assert_equal({ "hello-5000" => %w[firebrick] }, servers(options))
      assert_match(/\Aiodine was not found.*IODINE=.*left out: iodine of hello-5000\z/, options.notes.join("|"))
    end
  end

  def test_an_app_without_its_gem_is_left_out
    # A folder with no `ruby` in it has no gem either.
    options(%w[redis-pool-64], %w[puma]) do |options|
      assert_equal({ "redis-pool-64" => [] }, servers(options))
      assert_match(/gem connection_pool was not found.*left out: redis-pool-64/, options.notes.join("|"))
    end
  end

  def test_configurations_are_filled_in_completely
    values = Bench::Server.values(port: 81, dir: "/site", shape: [1, 1]).merge("home" => "/home", "backend" => 82)
    [*Bench::Peers::STATIC.values, *Bench::Peers::PROXIES.values, Bench::Peers::BACKEND].flat_map { |peer| peer.config.values }.each do |text|
      filled = Bench::Server.fill(text, values, "config")
      refute_match(/\{\w+\}/, filled)
      assert_match(/81|82/, filled)
    end
  end
end

class SitesTest < Minitest::Test
  def test_ten_thousand_files_of_one_to_eight_kibibytes
    Dir.mktmpdir do |dir|
      folder = Bench::Sites.folder("many", dir)
      sizes = Dir.glob("*/*.html", base: folder).map { |name| File.size(File.join(folder, name)) }
      assert_equal [10_000, 100], [sizes.size, Dir.children(folder).size]
      assert_operator sizes.min, :>=, 1_024
      assert_operator sizes.max, :<=, 8_192
      assert_operator sizes.uniq.size, :>, 7_000
      assert_equal folder, Bench::Sites.folder("many", dir)
    end
  end
end

class ParsingTest < Minitest::Test
  AB = "Complete requests:      1000\nFailed requests:        3\nTime taken for tests:   0.5 seconds\nNon-2xx responses:      2\n"
  CSV = "Percentage served,Time in ms\n50,1.250\n99,7.500\n100,9.000\n"

  def test_ab_counts_failed_and_refused_requests
    sample = Bench::Loads::Ab.parse(AB, CSV, 1000)
    assert_equal [1000, 0.5, 5, 1.25, 7.5, 9.0], sample.to_a
  end

  def test_ab_that_gave_up_counts_requests_not_sent
    sample = Bench::Loads::Ab.parse("apr_socket_recv: Connection reset by peer (104)\nTotal of 40 requests completed\n", "", 1000)
    assert_equal [40, 960, nil], [sample.requests, sample.errors, sample.seconds]
  end

  def test_siege_without_a_result_is_a_failure
    text = %(noise\n{\t"successful_transactions":\t590,\n\t"elapsed_time": 2.5,\n\t"longest_transaction": 0.2\n}\n)
    sample = Bench::Loads::Siege.parse(text, 600)
    assert_equal [590, 10, 200.0], [sample.requests, sample.errors, sample.longest]
    assert_raises(Bench::Failure) { Bench::Loads::Siege.parse("siege aborted", 600) }
  end
end

class ProcessTreeTest < Minitest::Test
  BURN = "t = Process.clock_gettime(2) + 0.2; nil while Process.clock_gettime(2) < t"

  # Runs Ruby code as leader of a session until the block ends; the code prints a line when it is ready.
  def tree(code)
    reader, writer = IO.pipe
    pid = fork do
      Process.setsid
      $stdout.reopen(writer)
      exec("ruby", "-e", "$stdout.sync = true; #{code}; sleep")
    end
    reader.gets
    found = Bench::ProcessTree.new(pid)
    yield found
  ensure
    found&.kill
    Process.wait(pid)
    [reader, writer].each(&:close)
  end

  def test_cpu_of_threads_and_children_that_ended_is_counted
    tree("Thread.new { #{BURN} }.join; Process.wait(fork { #{BURN} }); puts") do |found|
      assert_operator found.cpu_seconds, :>=, 0.35
      assert_equal 1, found.members.size
    end
  end

  def test_orphans_stay_in_the_tree_and_are_killed_with_it
    tree("Process.wait(fork { fork { sleep } }); puts") do |found|
      assert_equal 2, found.living.size
      assert_operator found.pss_mib, :>, 1
      assert_equal 2, found.kill
    end
  end
end

class ServerTest < Minitest::Test
  def test_a_server_that_exits_at_once_shows_its_log
    Dir.mktmpdir do |dir|
      server = Bench::Server.new("ruby -e 'abort %q(no such app)'", log: File.join(dir, "log"))
      error = assert_raises(Bench::Failure) { server.start(dir, [1, 1]) { false } }
      assert_match(/no such app/, error.message)
      assert_equal 0, server.stop
    end
  end

  def test_a_server_that_does_not_get_ready_is_stopped
    Dir.mktmpdir do |dir|
      server = Bench::Server.new("ruby -e sleep", log: File.join(dir, "log"))
      assert_raises(Bench::Failure) { server.start(dir, [1, 1], within: 0.2) { false } }
      assert_empty server.tree.living
      other = Bench::Server.new("ruby -e sleep", log: File.join(dir, "log"))
      assert_raises(NoMethodError) { other.start(dir, [1, 1]) { nil.wrong } }
      assert_empty other.tree.living
    end
  end

  def test_stop_kills_a_child_that_ignores_the_signal
    Dir.mktmpdir do |dir|
      code = "fork { trap(:TERM, %q(IGNORE)); File.write(%q(up), %q()); sleep }; sleep"
      server = Bench::Server.new("ruby -e '#{code}'", log: File.join(dir, "log"))
      server.start(dir, [1, 1]) { File.exist?(File.join(dir, "up")) }
      assert_equal 1, server.stop(timeout: 0.2)
      assert_empty server.tree.living
    end
  end
end

class AppsTest < Minitest::Test
  def test_each_app_sends_the_body_that_its_scenarios_expect
    Bench::SCENARIOS.reject(&:peers).uniq(&:app).reject(&:redis).each do |scenario|
      app, = Rack::Builder.parse_file(File.expand_path("../apps/#{scenario.app}/config.ru", __dir__))
      response = Rack::MockRequest.new(app).post("/", input: "x" * scenario.upload) if scenario.upload.positive?
      response ||= Rack::MockRequest.new(app).get("/")
      assert_equal [200, scenario.bytes, scenario.sha256],
                   [response.status, response.body.bytesize, Digest::SHA256.hexdigest(response.body)], scenario.app
    end
  end
end

# One short round of each scenario without an app: checks that it runs and gives every figure, not the figures themselves.
class WithoutAppTest < Minitest::Test
  Bench::WITHOUT_APP.each do |scenario|
    define_method("test_#{scenario.name}") do
      pinned = Etc.nprocessors > 1 ? [] : ["--no-pin"]
      options = Bench::Options.new(["--rounds", "1", *pinned, scenario.name])
      options.need_programs
      servers = options.servers_for(scenario)
      skip options.notes.join if servers.empty?
      run = Dir.mktmpdir { |dir| Bench::Interleaved.new(scenario, servers, dir: dir, seconds: 1, rounds: 1, pinned: options.pin, sized: true).run }
      servers.each_key { |name| check(run, name, scenario) }
    end
  end

  # A load whose response takes 3 s.
  class SlowLoad
    def seconds = @seconds ||= []

    def warm_up(*) = nil

    def run(_url, setting)
      seconds << setting.seconds
      Bench::Loads::Sample.new(requests: setting.seconds / 3, seconds: setting.seconds, errors: 0)
    end
  end

  def test_a_slice_that_is_too_short_for_a_response_is_repeated_twice_as_long
    scenario = Bench::WITHOUT_APP.find { |one| one.name == "static-large-4" }
    load = SlowLoad.new
    servers = Bench::Options.new([scenario.name]).servers_for(scenario).slice("firebrick")
    servers.transform_values! { |peer| peer.dup.tap { |copy| copy.load = load } }
    run = Dir.mktmpdir { |dir| Bench::Interleaved.new(scenario, servers, dir: dir, seconds: 1, rounds: 1, pinned: false).run }
    assert_equal [1, 2, 4], load.seconds.first(3)
    assert_equal 1, run.rounds.slices("firebrick").first.sample.requests
  end

  def check(run, name, scenario)
    slice = run.rounds.slices(name).first
    assert_operator slice.sample.requests, :>, 0, name
    assert_operator slice.cpu_us, :>, 0, name
    assert_kind_of Numeric, slice.value(scenario.metric), name
    assert_equal [0, 0], [slice.sample.errors, run.killed[name]], name
    # At the start and after the load; again where a disturbed round was repeated.
    assert_operator run.memory[name].size, :>=, 2, name
    assert run.memory[name].all?(&:positive?), name
  end
end
