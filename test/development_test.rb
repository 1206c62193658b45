# frozen_string_literal: true

# The plain program in development, without further options.

require "support/program_case"

class DevelopmentTest < ProgramCase
  parallel!

  APP = <<~'RUBY'
    require_relative "greeting"
    $stdout.sync = true
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/slow" then puts("entered") || sleep
      when "/error" then raise "an error to be read"
      when "/multiprocess" then [200, {}, [env["rack.multiprocess"].to_s]]
      else [200, { "content-type" => "text/plain" }, [Greeting::TEXT]]
      end
    end)
  RUBY

  def firebrick(*flags, files: {}, env: {}, **options)
    files = { "config.ru" => APP, "greeting.rb" => greeting("hello") }.merge(files)
    env = Server.ruby_files.merge(env)
    program(command: [Server.binary, "-p", "0", "-o", "127.0.0.1", *flags], files: files, env: env, **options)
  end

  def greeting(text)
    "module Greeting; remove_const(:TEXT) if const_defined?(:TEXT); TEXT = #{text.inspect}; end\n"
  end

  def workers(server)
    Processes.tree(server.pid).count { |one| Processes.command(one.pid).start_with?("firebrick: worker") }
  end

  it "has one worker, says so, and logs requests to the terminal" do
    server = firebrick
    assert_equal "hello", fetch(server.port)
    assert_match(/^\* Environment: development \(errors are shown, no worker time-out, Ctrl-C ends at once\)/, server.output)
    assert_match(/^\* 1 worker x 1:3 threads/, server.output)
    assert_equal 1, workers(server)
    server.wait_for(%r{127\.0\.0\.1 .*"GET / HTTP/1\.1" 200})
  end

  it "has as many workers as were asked for, by flag, variable or file" do
    [[["-w", "2"], {}, {}], [[], { "WEB_CONCURRENCY" => "2" }, {}], [[], {}, { "firebrick.toml" => "workers = 2" }]].each do |flags, env, files|
      server = firebrick(*flags, env: env, files: files)
      server.port
      assert_equal 2, workers(server)
    end
  end

  it "has the defaults of production in other environments" do
    server = firebrick(env: { "RACK_ENV" => "production" })
    assert_equal "hello", fetch(server.port)
    assert_match(/^\* Environment: production$/, server.output)
    refute_match(%r{"GET /}, server.output)
    refute_includes fetch(server.port, "/error"), "to be read"
  end

  it "shows errors in the response and on the terminal" do
    server = firebrick
    body = fetch(server.port, "/error")
    assert_match(/RuntimeError: an error to be read.*config\.ru:\d+/m, body)
    server.wait_for(/RuntimeError: an error to be read/)
    assert_match(/^      > \d+ \| .*an error to be read/, body, "the source")
  end

  it "shows the source of the app in a browser, without the lines of the server" do
    server = firebrick
    page = Net::HTTP.get(URI("http://127.0.0.1:#{server.port}/error"), { "Accept" => "text/html" })
    assert_match(%r{<h1>RuntimeError at GET /error</h1><p class="message">an error to be read</p><pre>.*<mark>[^<]*an error to be read[^<]*</mark>}m, page)
    assert_match(%r{<h2>In the app</h2><pre>config\.ru:\d+:in }, page)
    refute_includes page, "lib/firebrick"
  end

  it "ends at once by Ctrl-C at its terminal, though a request is under way" do
    server = firebrick("--shutdown-timeout", "10m", terminal: true)
    socket = TCPSocket.new("127.0.0.1", server.port)
    socket.write("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    server.wait_for("entered")
    server.type("\u0003")
    assert_equal 0, server.wait_exit
  end

  it "still finishes requests by TERM" do
    server = firebrick(files: { "config.ru" => "$stdout.sync = true\nrun ->(_) { puts 'entered'; sleep 0.5; [200, {}, ['finished']] }" })
    client = Thread.new { fetch(server.port) }
    server.wait_for("entered")
    server.signal("TERM")
    assert_equal "finished", client.value
    assert_equal 0, server.wait_exit
  end

  it "serves changed code when tmp/restart.txt is touched" do
    server = firebrick
    assert_equal "hello", fetch(server.port)
    server.write("greeting.rb", greeting("changed"))
    server.write("tmp/restart.txt", "")
    assert wait_until(within: 30) { fetch(server.port) == "changed" }
  end

  it "serves changed code where the app reloads it" do
    server = firebrick(files: { "config.ru" => "require 'rack'\nrequire 'rack/reloader'\nuse Rack::Reloader, 0\n#{APP}" })
    assert_equal "hello", fetch(server.port)
    server.write("greeting.rb", greeting("changed"))
    later = Time.now + 5
    File.utime(later, later, File.join(server.base, "greeting.rb"))
    assert wait_until(within: 30) { fetch(server.port) == "changed" }
  end

  it "leaves a request alone that takes longer than the worker time-out of production" do
    server = firebrick(files: { "config.ru" => "run ->(_) { sleep 3; [200, {}, ['patient']] }" })
    assert_equal "patient", fetch(server.port)
    server = firebrick("--worker-timeout", "1s", files: { "config.ru" => "run ->(_) { sleep 60; [200, {}, ['patient']] }" })
    assert_match(/504/, Net::HTTP.get_response(URI("http://127.0.0.1:#{server.port}/")).code)
  end
end
