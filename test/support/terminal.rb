# frozen_string_literal: true

# A program in its own terminal: its output is kept as a screen of characters, and as raw bytes. Understands the few
# escape sequences that full-screen programs use.

require "io/console"
require "pty"
require "support/clock"
require "support/processes"

class Terminal
  include Clock

  attr_reader :pid, :sent, :status

  def initialize(*command, rows: 24, columns: 80, env: {})
    @sent = +"".b
    @rest = +"".b
    resize_screen(rows, columns)
    @lock = Mutex.new
    # The shell reads a line before it runs the program, so that the size is set before the program reads it.
    @reader, @writer, @pid = PTY.spawn({ "TERM" => "xterm-256color", "NO_COLOR" => nil, **env }, "sh", "-c", 'read -r _ && exec "$@"', "sh", *command)
    @reader.winsize = [rows, columns]
    @mode = mode
    @writer.write("\n")
    @thread = Thread.new { listen }
    @thread.report_on_exception = false
  end

  # The screen as lines of text.
  def screen
    @lock.synchronize { @cells.map { |row| row.join.rstrip } }
  end

  def shows?(text)
    screen.any? { |line| line.match?(text.is_a?(Regexp) ? text : Regexp.new(Regexp.escape(text))) }
  end

  # Waits until the screen shows the text.
  def wait_for(text, within: 15)
    wait_until(within: within) { shows?(text) } || raise(Minitest::Assertion, "waited #{within} s for #{text.inspect}; the screen is:\n#{screen.join("\n")}")
  end

  def press(keys)
    @writer.write(keys)
  end

  def resize(rows, columns)
    @lock.synchronize { resize_screen(rows, columns) }
    @reader.winsize = [rows, columns]
  end

  # The terminal's settings, in stty's format.
  def mode
    IO.popen(["stty", "-g", "-F", @reader.path], err: File::NULL, &:read).strip
  end

  # Returns whether settings, screen and cursor are as they were before.
  def restored?
    mode == @mode && (@sent.rindex("\e[?1049l") || -1) > (@sent.rindex("\e[?1049h") || -1) && (@sent.rindex("\e[?25h") || -1) > (@sent.rindex("\e[?25l") || -1)
  end

  def running?
    return false if @status

    _, @status = Process.wait2(@pid, Process::WNOHANG)
    @status.nil?
  end

  def stopped?
    Processes.info(@pid)&.state == "T"
  end

  def wait_exit(within: 10)
    wait_until(within: within) { !running? } or raise Minitest::Assertion, "still running after #{within} s; the screen is:\n#{screen.join("\n")}"
    @thread.join(2)
    @status.exitstatus || -@status.termsig
  end

  # Closes the terminal itself, as the end of an SSH connection does.
  def hang_up
    @thread.kill
    @thread.join
    [@reader, @writer].each(&:close)
  end

  def close
    if running?
      Process.kill("KILL", @pid)
      Process.kill("CONT", @pid)
      Process.wait(@pid)
    end
    @thread.kill
    [@reader, @writer].each { |io| io.close unless io.closed? }
  end

  private

  def listen
    loop { take_in(@reader.readpartial(65_536)) }
  rescue SystemCallError, IOError
    nil # the program closed its side
  end

  def resize_screen(rows, columns)
    @cells = Array.new(rows) { Array.new(columns, " ") }
    @row = @column = 0
  end

  SEQUENCE = /\A\e(?:\[([?\d;]*)([a-zA-Z])|[()][A-Z0-9]|[=>78cM])/
  private_constant :SEQUENCE

  def take_in(bytes)
    @lock.synchronize do
      @sent << bytes
      @rest << bytes
      nil while draw_next
    end
  end

  # Draws one character or sequence; false when it is incomplete.
  def draw_next
    text = @rest.dup.force_encoding("UTF-8")
    if text.start_with?("\e")
      match = SEQUENCE.match(text.scrub("?")) or return false
      execute(match[1], match[2])
      @rest = @rest.byteslice(match[0].bytesize..)
    else
      character = text[0]
      return false if character.nil? || !character.valid_encoding?

      put(character)
      @rest = @rest.byteslice(character.bytesize..)
    end
    true
  end

  def execute(numbers, letter)
    first, second = numbers.to_s.split(";").map(&:to_i)
    case letter
    when "H"
      @row = [(first || 1) - 1, 0].max
      @column = [(second || 1) - 1, 0].max
    when "J" then @cells.each { |row| row.fill(" ") }
    when "K" then @cells[@row]&.fill(" ", @column)
    end
  end

  def put(character)
    case character
    when "\r" then @column = 0
    when "\n" then @row += 1
    else
      @cells[@row][@column] = character if @cells[@row] && @column < @cells[@row].size
      @column += 1
    end
  end
end
