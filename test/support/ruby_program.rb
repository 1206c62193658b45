# frozen_string_literal: true

# A Ruby script in its own process, for programs with an embedded server: in a terminal, or with its output in a file. It
# uses the checkout's library, and the program under test.

require "fileutils"
require "io/console"
require "pty"
require "tmpdir"
require "support/clock"
require "support/processes"
require "support/server"

class RubyProgram
  include Clock

  LIB = File.join(Server::ROOT, "worker/lib")

  attr_reader :base, :pid

  # Variables that Firebrick::Server needs, in this process or another one.
  def self.environment
    { "FIREBRICK_PROGRAM" => Server.binary }
  end

  # The command `rackup -s firebrick` with these arguments. Rack 3 contains no rackup.
  # lib:: the folder of the library
  def self.rackup(*arguments, lib: LIB)
    handler = Server.rack_release.to_i >= 3 ? "rackup" : "rack"
    [ENV.fetch("RUBY", "ruby"), "-I", lib, "-e", "require '#{handler}'; #{handler.capitalize}::Server.start", "--", "-s", "firebrick", *arguments]
  end

  # command:: the arguments of the program; by default `program.rb` for Ruby
  # files::   path => content, in a fresh folder
  # terminal:: whether the process has a terminal, as its session leader
  def initialize(source = nil, command: nil, files: {}, env: {}, terminal: false, dir: nil)
    @base = File.realpath(Dir.mktmpdir("firebrick-ruby"))
    files = files.merge("program.rb" => source) if source
    files.each { |name, text| write(name, text) }
    FileUtils.mkdir_p([File.join(@base, "temporary"), File.join(@base, "run")])
    @dir = dir || @base
    @env = env
    @output = +"".b
    @lock = Mutex.new
    launch(command || ruby("program.rb"), terminal)
  end

  def ruby(*arguments)
    [ENV.fetch("RUBY", "ruby"), "-I", LIB, *arguments]
  end

  def write(name, text)
    path = File.join(@base, name)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, text)
  end

  # The output so far.
  def output
    @lock.synchronize { @output.dup }.force_encoding("UTF-8").scrub
  end

  # Waits until the output after the last match matches. Returns the match.
  def wait_for(pattern, within: 90)
    pattern = Regexp.new(Regexp.escape(pattern)) if pattern.is_a?(String)
    match = nil
    wait_until(within: within) { (match = pattern.match(output, @seen || 0)) || !running? }
    match ||= pattern.match(output, @seen || 0)
    raise Minitest::Assertion, "#{pattern.inspect} was not printed; what was:\n#{output}" unless match

    @seen = match.end(0)
    match
  end

  # Types into the terminal.
  def type(text)
    @input.write(text)
  end

  # The server's port, when it listens.
  def port
    @port ||= Integer(wait_for(/Listening on http:\S+:(\d+)\s/)[1])
  end

  def signal(name)
    Process.kill(name, @pid)
  end

  def running?
    return false if @status

    _, @status = Process.wait2(@pid, Process::WNOHANG)
    @status.nil?
  end

  def wait_exit(within: 30)
    wait_until(within: within) { !running? } or raise Minitest::Assertion, "still running after #{within} s; its output:\n#{output}"
    @reader.join(2)
    @status.exitstatus || -@status.termsig
  end

  # The fronts that it has started.
  def fronts
    Processes.tree(@pid).select { |one| Processes.command(one.pid).start_with?("firebrick front") }
  end

  # Ends the process. Returns what it has left behind.
  def finish
    known = running? ? Processes.tree(@pid) : []
    Process.kill("KILL", @pid) if running?
    wait_until(within: 10) { !running? }
    all = -> { (known + Processes.in_directory(@base)).uniq(&:pid).select { |one| Processes.alive?(one) } }
    wait_until(within: 10) { all.call.empty? }
    problems = all.call.map { |one| "process left behind: #{one.pid} #{Processes.command(one.pid)}" }
    all.call.each { |one| Process.kill("KILL", one.pid) rescue Errno::ESRCH }
    problems += left.map { |file| "file left behind: #{file}" }
    @reader.kill
    FileUtils.remove_entry(@base)
    problems
  end

  # Files left by servers: sockets, large bodies. Files of browsers started by a program do not count.
  def left
    Dir.glob("{temporary,run}/**/*", base: @base).reject { |file| file == "run/firebrick" || file.match?(%r{\A(temporary/\.?org\.chromium|run/dconf)}) }
  end

  private

  def launch(command, terminal)
    cleared = %w[PORT WEB_CONCURRENCY RAILS_MAX_THREADS RAILS_MIN_THREADS APP_ENV RACK_ENV RAILS_ENV].to_h { |key| [key, nil] }
    env = cleared.merge(self.class.environment, { "TMPDIR" => File.join(@base, "temporary"), "XDG_RUNTIME_DIR" => File.join(@base, "run"),
                                                  "RUBYLIB" => LIB, "HOME" => @base }, @env)
    if terminal
      output, @input, @pid = PTY.spawn(env.merge("TERM" => "xterm", "NO_COLOR" => "1"), *command, chdir: @dir)
      output.winsize = [50, 200]
    else
      output, theirs = IO.pipe
      @pid = Process.spawn(env, *command, chdir: @dir, in: File::NULL, out: theirs, err: theirs, pgroup: true)
      theirs.close
    end
    @reader = Thread.new { read(output) }
  end

  def read(io)
    loop do
      bytes = io.readpartial(65_536)
      # Line editors ask for the position of the cursor.
      @input.write("\e[1;1R") if bytes.include?("\e[6n")
      @lock.synchronize { @output << bytes }
    end
  rescue IOError, SystemCallError
    nil # it has ended
  end
end
