# frozen_string_literal: true

# Debuggers in a real terminal: a request stops, text is typed, the request goes on.

require "support/program_case"

class DebuggerTest < ProgramCase
  parallel! slow: true

  IRB = 'require "irb"'

  def app(library, call)
    <<~RUBY
      $stdout.sync = true
      #{library}
      ENV["IRBRC"] = "/dev/null"
      APP = lambda do |env|
        answer = "unchanged"
        #{call} if env["PATH_INFO"] == "/stop"
        [200, { "content-type" => "text/plain" }, [answer]]
      end
    RUBY
  end

  ATTACHED = <<~'RUBY'
    require "firebrick/server"
    Firebrick::Server.new(APP, port: 0, quiet: false, threads: "1:2").run
  RUBY

  # Types `answer = "typed"` where the program has stopped, waits longer than a worker may be silent, and lets it go on.
  def debug(ruby, prompt, go_on)
    port = ruby.port
    client = Thread.new { Net::HTTP.get(URI("http://127.0.0.1:#{port}/stop")) }
    ruby.wait_for(prompt)
    ruby.type("2000 + 345\n")
    ruby.wait_for("2345")
    ruby.wait_for(prompt)
    sleep 2.5
    assert client.alive?, "the request waits"
    ruby.type("answer = 'ty' + 'ped'\n")
    ruby.wait_for(prompt)
    ruby.type("#{go_on}\n")
    assert_equal "typed", client.value
    # The terminal is restored: Ctrl-C ends the server.
    ruby.type("\u0003")
    assert_equal 0, ruby.wait_exit
  end

  # The prompt of `irb`, with or without colours.
  PROMPT = /irb\(.*?\):\d+(?::\d+)?[>*]/

  it "has binding.irb in a server of this process" do
    debug(program(app(IRB, "binding.irb") + ATTACHED, terminal: true), PROMPT, "exit")
  end

  it "has byebug in a server of this process" do
    skip "byebug is not installed" unless system(ENV.fetch("RUBY", "ruby"), "-e", "require 'byebug'", out: File::NULL, err: File::NULL)
    debug(program(app('require "byebug"', "byebug") + ATTACHED, terminal: true), "(byebug) ", "continue")
  end

  it "has debug in a server of this process" do
    skip "the gem debug is not installed" unless system(ENV.fetch("RUBY", "ruby"), "-e", "require 'debug/session'", out: File::NULL, err: File::NULL)
    debug(program(app('require "debug/prelude"', "debugger") + ATTACHED, terminal: true), "(rdbg", "continue")
  end

  it "has binding.irb in the worker of the plain program" do
    files = { "config.ru" => "#{app(IRB, 'binding.irb')}run APP\n" }
    ruby = program(command: [Server.binary, "-p", "0", "-o", "127.0.0.1"], files: files, env: Server.ruby_files, terminal: true)
    debug(ruby, PROMPT, "exit")
  end

  it "answers other requests while one is in a debugger" do
    ruby = program(app(IRB, "binding.irb") + ATTACHED, terminal: true)
    port = ruby.port
    client = Thread.new { Net::HTTP.get(URI("http://127.0.0.1:#{port}/stop")) }
    ruby.wait_for(PROMPT)
    assert_equal "unchanged", fetch(port)
    ruby.type("exit\n")
    assert_equal "unchanged", client.value
  end
end
