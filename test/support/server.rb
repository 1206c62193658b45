# frozen_string_literal: true

# A real server in a fresh directory. It has started when it has printed one `* Listening on` line per listener. It has
# ended cleanly when TERM makes it exit 0 and no process, socket or file is left.

require "fileutils"
require "json"
require "open3"
require "socket"
require "tmpdir"
require "support/background_command"
require "support/clock"
require "support/interruption"
require "support/processes"
require "support/settings_file"

class Server
  include Clock

  ROOT = File.expand_path("../..", __dir__)
  LISTENING = /^(?:\[\d+\] )?\* Listening on (\S+)$/

  @kept = []

  class << self
    # Folders of servers that a test has refused, or has printed a report of.
    attr_reader :kept

    def puma?
      ENV["TEST_SERVER"] == "puma"
    end

    # Returns whether apps are served with fibers by default.
    def fibers?
      ENV.key?("TEST_FIBERS") && !puma?
    end

    # Path of the binary under test.
    def binary
      @binary ||= ENV["FIREBRICK"]&.then { |path| File.expand_path(path) } || newest_build ||
                  abort("No firebrick binary: build it with `cargo build -p cli`, or set FIREBRICK to its path.")
    end

    # A binary outside the checkout's own target directory does not find the checkout's Ruby files by itself.
    def ruby_files
      built_by_cargo = !puma? && binary.match?(%r{/(release|debug|dist)/firebrick\z})
      built_by_cargo && !ENV["FIREBRICK_LIB"] ? { "FIREBRICK_LIB" => File.join(ROOT, "worker/lib") } : {}
    end

    # Returns the Rack version that apps load, for tests that depend on it.
    def rack_release
      @rack_release ||= begin
        out, status = Open3.capture2e(ENV.fetch("RUBY", "ruby"), "-e", 'require "rack"; print Rack.release')
        status.success? ? out : abort("#{ENV.fetch('RUBY', 'ruby')} cannot load Rack: #{out}")
      end
    end

    # Returns whether the apps run on CRuby. Workers of other Rubies are spawned, and have threads but no fibers.
    def cruby?
      @engine ||= Open3.capture2(ENV.fetch("RUBY", "ruby"), "-e", "print RUBY_ENGINE, ' ', RUBY_ENGINE_VERSION").first.split.first
      @engine == "ruby"
    end

    # Whether the binary was built with mruby.
    def mruby?
      @mruby ||= begin
        probe = new(files: { "x.rb" => "lambda { |env| [200, {}, []] }" })
        _, err, = probe.command_line("check", "x.rb", "--mruby")
        FileUtils.remove_entry(probe.base)
        err.include?("without mruby") ? :no : :yes
      end
      @mruby == :yes
    end

    private

    def newest_build
      targets = [ENV["CARGO_TARGET_DIR"], File.join(ROOT, "target")].compact
      targets.flat_map { |dir| Dir[File.join(dir, "{release,debug}", "firebrick")] }.max_by { |path| File.mtime(path) }
    end
  end

  attr_reader :base, :dir, :pid, :status, :listeners

  # app::         source of config.ru; nil for a directory without one
  # files::       other files of the app's directory, path => content
  # settings::    firebrick.toml as nested hashes
  # workers:: threads:: environment::  the usual flags; nil leaves the flag out
  # fibers::      of each thread when TEST_FIBERS is set; 1 for tests of the number of requests served at a time
  # binds::       addresses for -b; by default a free port of 127.0.0.1; [] leaves the flag out
  # directory::   serve this existing directory instead (nothing is written into it)
  # args:: env::  added to the command line and to the environment
  # open_files::  the limit of its descriptors
  # exit_code::   the exit code of a clean end; :any for any
  # leaves::      files that the app writes and leaves behind: paths in its directory
  def initialize(app: nil, files: {}, settings: {}, workers: 1, threads: "1:5", fibers: ENV.fetch("TEST_FIBERS", nil), environment: "production", binds: nil,
                 directory: nil, args: [], env: {}, open_files: nil, exit_code: 0, leaves: [])
    @base = File.realpath(Dir.mktmpdir("firebrick-test"))
    Interruption.own(@base)
    @dir = directory || File.join(@base, "app")
    @workers = workers
    @threads = threads
    # A test that sets fibers itself keeps its setting.
    @fibers = fibers if Server.fibers? && !(settings.is_a?(Hash) && settings.key?(:fibers))
    @environment = environment
    @binds = binds
    @args = args
    @env = env
    @limits = open_files ? { rlimit_nofile: open_files } : {}
    @exit_code = exit_code
    @leaves = leaves.map { |name| "/app/#{name}" }
    @settings = settings
    FileUtils.mkdir_p([@dir, temp_dir, run_dir])
    write_files(app, files) unless directory
    @left_behind_before = listing
  end

  # Starts the server and waits until it listens.
  def start
    launch
    wait_until(within: 120) { !running? || listening.size >= [@binds&.size || 1, 1].max }
    @listeners = listening
    return self unless @listeners.empty?

    failed = "the server did not start; exit status #{@status.inspect}\n#{report}"
    finish
    raise Minitest::Assertion, failed
  end

  # Starts without waiting, for servers that are expected to fail.
  def launch
    @pid = Process.spawn(environment, *command, chdir: @dir, pgroup: true, in: File::NULL,
                                                out: [stdout_path, "w"], err: [stderr_path, "w"], unsetenv_others: false, **@limits)
    self
  end

  # [host, port] of the first TCP listener, or the path of the Unix socket if there is no other.
  def address
    uri = listeners.first
    return uri.delete_prefix("unix://") if uri.start_with?("unix://")

    match = %r{\A(?:https?|tcp)://(.+):(\d+)\z}.match(uri)
    # Listeners on all addresses accept IPv4, too.
    [match[1].delete("[]").sub(/\A::\z/, "127.0.0.1"), match[2].to_i]
  end

  def port
    address.last
  end

  def url(path = "/")
    "#{listeners.first[/\Ahttps?/] || 'http'}://#{address.join(':')}#{path}"
  end

  def stdout
    File.exist?(stdout_path) ? File.read(stdout_path) : ""
  end

  def stderr
    File.exist?(stderr_path) ? File.binread(stderr_path).force_encoding("UTF-8").scrub : ""
  end

  def temp_dir
    File.join(@base, "tmp")
  end

  def run_dir
    File.join(@base, "run")
  end

  def path(name)
    File.join(@dir, name)
  end

  def signal(name)
    Process.kill(name, @pid)
  end

  def running?
    return false if @status || @pid.nil?

    _, @status = Process.wait2(@pid, Process::WNOHANG)
    @status.nil?
  end

  # Waits for the exit; returns the exit code, or -signal.
  def wait_exit(within: 20)
    wait_until(within: within) { !running? } or raise Minitest::Assertion, "the server is still running after #{within} s\n#{report}"
    @status.exitstatus || -@status.termsig
  end

  # The front and all its descendants, including orphaned ones.
  def processes
    every = Processes.all
    found = running? ? Processes.tree(@pid, every) : []
    (found + Processes.in_directory(@base, every: every)).uniq(&:pid)
  end

  # Proportional set size of all processes together, in bytes.
  def pss
    Processes.pss(processes)
  end

  # Runs a `firebrick` subcommand in the server's environment: [stdout, stderr, exit code].
  def command_line(*args, input: "")
    out, err, status = Open3.capture3(environment, self.class.binary, *args, stdin_data: input, chdir: @dir)
    [out, err, status.exitstatus]
  end

  # Starts the same without waiting for its end.
  def begin_command(*args)
    BackgroundCommand.new(environment, self.class.binary, *args, chdir: @dir)
  end

  def stats
    out, err, code = command_line("stats", @dir, "--json")
    raise Minitest::Assertion, "firebrick stats exited #{code}: #{err}" unless code&.zero?

    JSON.parse(out)
  end

  # The JSON of an endpoint of the control socket.
  def control(target) = JSON.parse(control_response(target).last)

  # The page that Prometheus reads.
  def metrics = control_response("/metrics").last

  # Head and body of the response to a GET on the control socket.
  def control_response(target, headers = "")
    socket = UNIXSocket.new(Dir[File.join(run_dir, "firebrick", "*.sock")].first)
    socket.write("GET #{target} HTTP/1.1\r\nHost: localhost\r\n#{headers}\r\n")
    socket.read.split("\r\n\r\n", 2)
  ensure
    socket&.close
  end

  # Stops the server and returns the faults of its end.
  def finish
    return [] if @finished

    @finished = true
    problems = stop
    problems.empty? && !@keep ? FileUtils.remove_entry(@base) : Server.kept << @base
    Interruption.disown(@base)
    problems
  end

  # Both logs, for failure messages; also keeps the directory.
  def report
    @keep = true
    "#{Server.puma? ? 'puma' : 'firebrick'} in #{@base}\n" \
      "stdout:\n#{stdout.gsub(/^/, '  ')}stderr (tail):\n#{stderr.lines.last(60).join.gsub(/^/, '  ')}"
  end

  # Starts a second server for the same directory; returns an IO of its output.
  def second_instance
    IO.popen([environment, *command, { err: %i[child out] }])
  end

  private

  def stop
    return ["the server was never launched"] unless @pid

    known = processes
    problems = end_process
    left = wait_until(within: 5) { (known + processes).uniq(&:pid).none? { |one| Processes.alive?(one) } }
    problems.concat(kill_remains(known)) unless left
    problems.concat(files_left) unless self.class.puma?
    problems
  end

  def end_process
    was_running = running?
    Process.kill("TERM", @pid) if was_running
    wait_until(within: 20) { !running? }
    return ["TERM did not end the server within 20 s"] if running?
    return [] if self.class.puma? || @status.exitstatus == @exit_code || @exit_code == :any

    ["the server ended with #{@status}, expected exit code #{@exit_code}"]
  end

  def kill_remains(known)
    remains = (known + processes).uniq(&:pid).select { |one| Processes.alive?(one) }
    problems = remains.map { |one| "process left behind: #{one.pid} #{Processes.command(one.pid)}" }
    remains.each { |one| Process.kill("KILL", one.pid) rescue Errno::ESRCH }
    wait_until(within: 5) { !running? }
    problems
  end

  def files_left
    files = (listing - @left_behind_before).reject { |file| file.end_with?(".log") || file == "/run/firebrick" || file.start_with?(*@leaves) }
    files.map { |file| "file left behind: #{file}" }
  end

  def listing
    Dir.glob("{app,tmp,run}/**/*", File::FNM_DOTMATCH, base: @base).reject { |file| file.end_with?("/.") }.map { |file| "/#{file}" }
  end

  def listening
    stdout.scan(LISTENING).flatten
  end

  def stdout_path
    File.join(@base, "stdout.log")
  end

  def stderr_path
    File.join(@base, "stderr.log")
  end

  def environment
    cleared = %w[PORT WEB_CONCURRENCY RAILS_MAX_THREADS RAILS_MIN_THREADS APP_ENV RACK_ENV RAILS_ENV].to_h { |key| [key, nil] }
    own = { "TMPDIR" => temp_dir, "XDG_RUNTIME_DIR" => run_dir, "XDG_STATE_HOME" => File.join(@base, "state") }
    cleared.merge(own, self.class.ruby_files, @env)
  end

  def command
    return puma_command if self.class.puma?

    flags = (@binds || ["tcp://127.0.0.1:0"]).flat_map { |bind| ["-b", bind] }
    flags += ["-w", @workers.to_s] if @workers
    flags += ["-t", @threads] if @threads
    flags += ["-e", @environment] if @environment
    flags += ["--ruby", ENV["RUBY"]] if ENV["RUBY"]
    flags += ["--front-threads", "2"] unless front_threads?
    flags += ["--fibers", @fibers.to_s] if @fibers && File.exist?(path("config.ru"))
    [self.class.binary, "serve", @dir, *flags, *@args]
  end

  # Returns whether the test sets the number of front threads. The default may be one, and tests should run with two.
  def front_threads?
    @dir != File.join(@base, "app") || @settings.to_s.include?("front_threads") || @args.include?("--front-threads")
  end

  def puma_command
    binds = (@binds || ["tcp://127.0.0.1:0"]).flat_map { |bind| ["-b", bind] }
    ["puma", *binds, "-w", (@workers || 1).to_s, "-t", @threads || "1:5", "-e", @environment || "production",
     "--preload", File.join(@dir, "config.ru")]
  end

  def write_files(app, files)
    files = files.merge("config.ru" => app) if app
    files = files.merge("firebrick.toml" => SettingsFile.render(@settings)) unless @settings.empty?
    files.each do |name, content|
      path = File.join(@dir, name)
      FileUtils.mkdir_p(File.dirname(path))
      File.binwrite(path, content)
    end
  end
end
