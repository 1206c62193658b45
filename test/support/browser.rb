# frozen_string_literal: true

# The real Chromium, headless, driven over its DevTools pipe: NUL-terminated JSON messages, commands to its descriptor 3,
# replies and events from its descriptor 4. All waits have a deadline, and `close` leaves nothing behind.

require "fileutils"
require "io/nonblock"
require "io/wait"
require "json"
require "tmpdir"
require "support/browser_page"
require "support/clock"
require "support/processes"

class Browser
  include Clock

  # Chromium reported an error, or did not reply.
  class Refusal < StandardError; end

  PROGRAM = ENV.fetch("CHROMIUM", "/usr/bin/chromium")
  FLAGS = %w[
    --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe
    --no-first-run --no-default-browser-check --disable-background-networking --disable-component-update
    --disable-sync --disable-extensions --disable-crash-reporter --no-proxy-server --password-store=basic
    --hide-scrollbars --force-color-profile=srgb
  ].freeze
  START_WITHIN = 60 # seconds; these three only prevent endless waits
  ANSWER_WITHIN = 30
  CLOSE_WITHIN = 10

  def self.installed?
    File.executable?(PROGRAM)
  end

  attr_reader :pid

  # The block prepares the browser's home directory, whose path it gets.
  def initialize
    @home = File.realpath(Dir.mktmpdir("browser"))
    yield @home if block_given?
    @buffer = +"".b
    @answers = {}
    @pages = {}
    @last = 0
    launch
    command("Browser.getVersion", within: START_WITHIN)
  rescue StandardError
    close
    raise
  end

  # A page with its own cache and cookies. +scheme+ is light or dark.
  def page(scheme: "light", width: 1000, height: 800)
    context = command("Target.createBrowserContext").fetch("browserContextId")
    target = command("Target.createTarget", { url: "about:blank", browserContextId: context, width:, height: }).fetch("targetId")
    session = command("Target.attachToTarget", { targetId: target, flatten: true }).fetch("sessionId")
    @pages[session] = BrowserPage.new(self, session, context, scheme:, width:, height:)
    @pages[session].prepare
  end

  def forget(page)
    @pages.delete(page.session)
    command("Target.disposeBrowserContext", { browserContextId: page.context })
  end

  # Sends a command and waits for its result. Events received meanwhile are delivered to their pages.
  def command(method, params = {}, session: nil, within: ANSWER_WITHIN)
    number = send_out({ method:, params:, sessionId: session }.compact)
    listen("the reply to #{method}", within:) { @answers.key?(number) }
    answer = @answers.delete(number)
    raise Refusal, "#{method}: #{answer['error']['message']}" if answer["error"]

    answer.fetch("result")
  rescue Errno::EPIPE
    raise Refusal, "Chromium exited before #{method}:\n#{log}"
  end

  # Processes messages until the block is true.
  def listen(what, within: ANSWER_WITHIN)
    stop = now + within
    until yield
      left = stop - now
      raise Refusal, "waited #{within} s for #{what}:\n#{log}" unless left.positive?

      take_in(left)
    end
  end

  # Asks Chromium to exit, and kills it if it does not.
  def close
    return unless @pid

    send_out({ method: "Browser.close" }) rescue StandardError
    gone = wait_until(within: CLOSE_WITHIN) { Process.wait(@pid, Process::WNOHANG) }
    kill unless gone
    wait_until(within: CLOSE_WITHIN) { leftovers.empty? } || leftovers.each { |pid| Process.kill("KILL", pid) rescue SystemCallError }
    @pid = nil
  ensure
    [@to, @from].each { |io| io&.close }
    FileUtils.remove_entry(@home, true)
  end

  private

  def launch
    raise Refusal, "#{PROGRAM} is not installed" unless self.class.installed?

    theirs_in, @to = IO.pipe(binmode: true)
    @from, theirs_out = IO.pipe(binmode: true)
    [theirs_in, theirs_out].each { |io| io.nonblock = false } # Ruby's default is non-blocking; Chromium treats EAGAIN as end of file
    # A home directory of its own keeps it out of the user's; a process group of its own makes all its processes findable.
    environment = { "HOME" => @home, "TMPDIR" => @home, "XDG_CONFIG_HOME" => nil, "XDG_CACHE_HOME" => nil, "XDG_DATA_HOME" => nil, "XDG_RUNTIME_DIR" => @home,
                    "DBUS_SESSION_BUS_ADDRESS" => "unix:path=/dev/null" }
    @pid = Process.spawn(environment, PROGRAM, *FLAGS, "--user-data-dir=#{File.join(@home, 'profile')}", "about:blank",
                         3 => theirs_in, 4 => theirs_out, in: File::NULL, %i[out err] => log_path, pgroup: true, chdir: @home)
    [theirs_in, theirs_out].each(&:close)
  end

  # Returns the command's id, which the reply repeats.
  def send_out(message)
    number = @last += 1
    bytes = "#{JSON.generate(message.merge(id: number))}\0".b
    until bytes.empty?
      raise Refusal, "Chromium reads no commands:\n#{log}" unless @to.wait_writable(ANSWER_WITHIN)

      written = @to.write_nonblock(bytes, exception: false)
      bytes = bytes.byteslice(written..) unless written == :wait_writable
    end
    number
  end

  def take_in(timeout)
    return unless @from.wait_readable(timeout)

    @buffer << @from.readpartial(1 << 20)
    *messages, @buffer = @buffer.split("\0", -1)
    messages.each { |message| hand_out(JSON.parse(message)) }
  rescue EOFError
    raise Refusal, "Chromium exited:\n#{log}"
  end

  def hand_out(message)
    if message.key?("id")
      @answers[message["id"]] = message
    else
      @pages[message["sessionId"]]&.notice(message["method"], message["params"])
    end
  end

  def kill
    Process.kill("KILL", @pid)
    Process.wait(@pid)
  end

  # Its processes that are still running: most are in its group, all were started in its home directory.
  def leftovers
    group = Processes.all.keys.select { |pid| Process.getpgid(pid) == @pid rescue SystemCallError }
    group | Processes.in_directory(@home).map(&:pid)
  end

  def log_path = File.join(@home, "chromium.log")

  # The last lines of its log, without the complaints about a missing desktop session.
  def log
    File.exist?(log_path) ? File.readlines(log_path).grep_v(/dbus/).last(20).join : ""
  end
end
