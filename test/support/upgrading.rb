# frozen_string_literal: true

# Servers that are replaced by a new program while they run.

require "support/load"
require "support/reloading"
require "support/server"

module Upgrading
  include Reloading

  # A server whose process changes. The new ones are not children of the test: their exit codes are unknown.
  class UpgradableServer < Server
    # +program+:: path by which it is started, instead of the binary's own
    def initialize(program: nil, **options)
      @program = program
      super(**options)
    end

    # Makes this process the server; the one before has to end by itself, with exit code 0.
    def follow(pid)
      code = wait_exit unless adopted?
      ended = adopted? ? wait_until(within: 20) { !running? } : code.zero?
      raise Minitest::Assertion, "the old program has not ended, or with #{code.inspect}\n#{report}" unless ended

      adopt(pid)
    end

    # Does the same after an old program that was killed.
    def adopt(pid)
      wait_until(within: 20) { !running? }
      @pid = pid
      @adopted = Processes.info(pid)
      @status = nil
    end

    def running?
      adopted? ? Processes.alive?(@adopted) : super
    end

    private

    def adopted? = @adopted

    def command
      @program ? [@program, *super.drop(1)] : super
    end

    def end_process
      return super unless adopted?

      Process.kill("TERM", @pid) if running?
      wait_until(within: 20) { !running? } ? [] : ["TERM did not end the new program within 20 s"]
    rescue Errno::ESRCH
      []
    end
  end

  # As `start`, with an app that responds with its version.
  def launch(app: Reloading::APP, version: "one", files: {}, **options)
    own = UpgradableServer.new(app: app, files: { "version.txt" => version }.merge(files), **options)
    @own_servers << own
    own.start
  end

  # `firebrick upgrade`: [stdout, stderr, exit code].
  def upgrade(own, *args)
    own.command_line("upgrade", own.dir, *args)
  end

  # Upgrades, and waits until the old program has ended.
  def assert_upgrades(own, *args, follow: true)
    out, err, code = upgrade(own, *args)
    assert_equal 0, code, -> { "#{out}#{err}#{own.report}" }
    own.follow(new_pid(out)) if follow
    out
  end

  def new_pid(out)
    Integer(out[/process (\d+) is started/, 1])
  end

  # Starts an upgrade and waits until the new program exists. Returns the thread, and its process.
  def begin_upgrade(own)
    command = Thread.new { upgrade(own) }
    pid = wait_until("the new program", within: 20) { own.stderr.scan(/upgrade: process (\d+) is started/).flatten.last }
    [command, Integer(pid)]
  end

  # Asserts that the upgrade failed for this reason, and the old program still serves.
  def assert_refused(own, reason)
    before = [own.pid, workers_of(own).sort]
    out, err, code = upgrade(own)
    assert_equal 1, code, -> { out + err }
    assert_match reason, err
    assert_unchanged(own, before)
    err
  end

  def assert_unchanged(own, before)
    assert own.running?, own.report
    assert_equal before, [own.pid, workers_of(own).sort]
    assert_equal own.pid, own.stats["pid"], "the control socket is its own"
    assert wait_until { templates(own).size == 1 }, "nothing of the new program is left"
  end

  # An app that loads only when the test says so.
  GATED = <<~RUBY.freeze
    sleep 0.02 until File.exist?(File.join(__dir__, "go"))
    #{Reloading::APP}
  RUBY
  private_constant :GATED

  def close_gate(own) = FileUtils.rm_f(own.path("go"))
  def open_gate(own) = FileUtils.touch(own.path("go"))

  def launch_gated(files: {}, **options)
    launch(app: GATED, files: { "go" => "" }.merge(files), **options)
  end
end
