# frozen_string_literal: true

# Random deploys under load: links are switched, releases loaded, undone and upgraded, and processes killed meanwhile. Afterwards one release
# serves everywhere: the one that the last command reported.
#
#   SEQUENCES=200 test/run release_sequences_test     more sequences than the usual few
#   SEQUENCE=1234 test/run release_sequences_test     the one with this number, again

require "support/case"
require "support/releases"
require "support/upgrading"

class ReleaseSequencesTest < Case
  parallel! slow: true

  include Upgrading
  include Releases

  THREADS = 3
  WORKERS = 2

  numbers = ENV.key?("SEQUENCE") ? [Integer(ENV["SEQUENCE"])] : Array.new(Integer(ENV.fetch("SEQUENCES", "3"))) { Random.rand(1_000_000) }
  numbers.uniq.each do |number|
    it "serves one release after the sequence #{number}" do
      firebrick_only
      released { |root| run_sequence(root, Random.new(number)) }
    end
  end

  private

  APP = <<~'RUBY'
    release = File.basename(__dir__)
    raise "release #{release} is broken" if File.exist?(File.join(__dir__, "broken"))
    run ->(env) { sleep 0.02 if env["PATH_INFO"] == "/20ms"; [200, {}, [release]] }
  RUBY
  private_constant :APP

  SETTINGS = "[files]\npublic = \"always\"\n[reload]\nwatch = \"0s\"\nkeep = \"60s\"\n"
  private_constant :SETTINGS

  # The steps, each with its weight.
  STEPS = { deploy: 6, deploy_in_place: 3, undo: 3, deploy_broken: 1, deploy_by_signal: 1, upgrade_program: 2, kill_template: 3, kill_worker: 3, resize: 1 }.freeze
  private_constant :STEPS

  def run_sequence(root, random)
    @root = root
    @random = random
    @last = 0
    @killed_workers = 0
    @steps = []
    switch(new_release)
    @own = UpgradableServer.new(directory: File.join(root, "current"), workers: WORKERS, threads: "#{THREADS}:#{THREADS}")
    @own_servers << @own.start
    @serving = "1"
    load = Load.new(@own.address, clients: 6, path: "/20ms").start
    8.times { step }
    assert_one_release
    load.stop
    failed = load.completed.reject { |one| one.status == 200 }
    assert_empty load.errors, method(:story)
    assert_operator failed.size, :<=, @killed_workers * THREADS, -> { "#{failed.map(&:body).tally}\n#{story}" }
  end

  def step
    name = pick
    @steps << name.to_s
    send(name)
    assert_one_release
  end

  def pick
    at = @random.rand(STEPS.values.sum)
    STEPS.find { |_, weight| (at -= weight).negative? }.first
  end

  def deploy = reload_with(new_release)
  def deploy_in_place = reload_with(new_release, "--in-place")
  def deploy_broken = reload_with(new_release("broken" => ""))
  def undo = command("reload", @own.dir, "--undo") { |text| @serving = text[/the old code serves again/] ? @before : @serving }

  def reload_with(number, *args)
    switch(number)
    command("reload", @own.dir, *args) do |text|
      if text.include?("the new code serves")
        @before = @serving
        @serving = number
      end
    end
  end

  def deploy_by_signal
    before = @own.stderr.lines.size
    switch(number = new_release)
    @own.signal("USR1")
    ended = wait_until("the reload to end", within: 60) { @own.stderr.lines.drop(before).grep(/the new code serves|reload failed/).last }
    return unless ended.include?("the new code serves")

    @before = @serving
    @serving = number
  end

  # The new program loads the release that the link names.
  def upgrade_program
    number = linked
    command("upgrade", @own.dir, between: false) do |text, code|
      next unless code.zero?

      @own.follow(new_pid(text))
      @before = nil
      @serving = number
    end
  end

  def kill_template
    pid = templates(@own).map(&:pid).sample(random: @random)
    kill(pid) if pid
  end

  def kill_worker
    pid = workers_of(@own).sample(random: @random)
    return unless pid

    @killed_workers += 1
    kill(pid)
  end

  def kill(pid)
    @steps << "killed #{pid}"
    Process.kill("KILL", pid)
  rescue Errno::ESRCH
    nil
  end

  def resize
    %w[TTIN TTOU].each { |name| @own.signal(name) }
  end

  # Runs a command of Firebrick. Often a process is killed, or the link switched again, while it runs.
  def command(*args, between: true)
    running = @own.begin_command(*args)
    meanwhile(running) if between && @random.rand(2).zero?
    running.wait
    @steps << running.output.strip.gsub(/^/, "    ")
    yield running.output, running.code
  end

  # The link is switched when the server has begun: a release that it names before is the one that is loaded.
  def meanwhile(running)
    sleep(@random.rand * 1.5)
    case @random.rand(4)
    when 0, 1 then kill_template
    when 2 then kill_worker
    else
      wait_until("the command to begin", within: 60) { !running.output.empty? }
      switch(new_release)
    end
  end

  def assert_one_release
    wait_until("the workers", within: 60) { workers_of(@own).size >= WORKERS && @own.stats["workers"].all? { |worker| worker["state"] == "ready" } }
    seen = nil
    same = wait_until(within: 30) do
      seen = Array.new(12) { [get("/", to: @own).body, get("/asset.txt", to: @own).body] }.uniq
      seen == [[@serving, "asset #{@serving}"]]
    end
    assert same, -> { "expected #{@serving}, got #{seen}\n#{story}" }
  end

  def story
    "#{@steps.join("\n")}\n#{@own.report}"
  end

  def new_release(more = {})
    number = (@last += 1).to_s
    files = { "config.ru" => APP, "firebrick.toml" => SETTINGS, "public/asset.txt" => "asset #{number}" }.merge(more)
    write_release(@root, number, files)
    number
  end

  def switch(number)
    @steps << "link to #{number}"
    link(@root, number)
  end

  def linked = File.basename(File.readlink(File.join(@root, "current")))
end
