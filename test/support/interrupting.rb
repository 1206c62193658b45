# frozen_string_literal: true

# Servers whose service an operator interrupts: `firebrick pause` and `firebrick maintenance`.

require "json"

module Interrupting
  # An app that writes down when it is entered, and can be held: a request for /gate waits for the file `go`.
  APP = <<~'RUBY'
    version = File.exist?(File.join(__dir__, "version.txt")) ? File.read(File.join(__dir__, "version.txt")) : "one"
    text = { "content-type" => "text/plain" }
    run lambda { |env|
      path = env["PATH_INFO"]
      File.write("../served.log", "#{env['REQUEST_METHOD']} #{path}\n", mode: "a")
      case path
      when "/gate" then File.write("../entered.log", "yes"); sleep 0.01 until File.exist?("../go"); [200, text, ["#{version} opened"]]
      when "/pid" then [200, text, [Process.pid.to_s]]
      when %r{\A/50ms} then sleep 0.05; [200, text, [version]]
      when "/echo" then [200, text, [env["rack.input"].read]]
      when "/socket"
        env["rack.hijack"].call
        io = env["rack.hijack_io"]
        Thread.new do
          io.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
          while (line = io.gets)
            io.write("echo #{line}")
          end
        ensure
          io.close
        end
        [200, {}, []]
      else [200, text, [version]]
      end
    }
  RUBY

  # `firebrick pause`: what it printed. +options+: its flags.
  def assert_pauses(own, *options)
    out, err, code = own.command_line("pause", own.dir, *options)
    assert_equal 0, code, -> { "#{out}#{err}#{own.report}" }
    out
  end

  def assert_resumes(own)
    out, err, code = own.command_line("resume", own.dir)
    assert_equal 0, code, -> { "#{out}#{err}#{own.report}" }
    out
  end

  # `firebrick maintenance`: what it printed.
  def assert_maintenance(own, *words)
    action = words.first&.start_with?("-") ? "status" : words.shift
    out, err, code = own.command_line("maintenance", action || "status", own.dir, *words)
    assert_equal 0, code, -> { "#{out}#{err}#{own.report}" }
    out
  end

  def pause_of(own) = own.control("/pause")

  def wait_for_waiting(count, on:)
    wait_until("#{count} requests to wait", within: 60) { pause_of(on)["waiting"] == count }
  end

  # Sends a request without waiting for its response.
  def send_to(own, path, method: "GET", headers: {}, body: nil)
    connect(own).tap { |connection| connection.write(request(method, path, headers, body)) }
  end

  # Asserts that nothing has come for a while.
  def assert_no_response(connection)
    refute connection.socket.wait_readable(0.2), "a response came"
  end

  # The requests that the app has been called with, in order.
  def served(own)
    file = File.join(own.base, "served.log")
    File.exist?(file) ? File.readlines(file, chomp: true) : []
  end

  def let_go(own) = FileUtils.touch(File.join(own.base, "go"))
  def entered?(own) = File.exist?(File.join(own.base, "entered.log"))
end
