# frozen_string_literal: true

# rackup, Rack's and Rackup's handlers, Sinatra: in development and test they serve the loaded app object; in production they become
# the program.

require "support/program_case"

class HandlersTest < ProgramCase
  parallel!

  APP = <<~'RUBY'
    $stdout.sync = true
    at_exit { puts "exit of #{Process.pid}" }
    run ->(env) { [200, { "content-type" => "text/plain" }, ["pid #{Process.pid} #{ENV['RACK_ENV']} #{env['rack.multiprocess']}"]] }
  RUBY

  def rackup(*arguments, **options)
    program(command: RubyProgram.rackup(*arguments), **options)
  end

  # A `ruby` in this folder that only complains.
  def another_ruby(folder, complaint)
    File.write(File.join(folder, "ruby"), "#!/bin/sh\necho '#{complaint}' >&2\nexit 3\n", perm: 0o755)
  end

  it "serves rackup's app in rackup's own process, which is in the pid file" do
    ruby = rackup("-p", "0", "-P", "server.pid", files: { "config.ru" => APP })
    assert_equal "pid #{ruby.pid} development false", fetch(ruby.port)
    assert_equal ruby.pid, Integer(File.read(File.join(ruby.base, "server.pid")))
    ruby.signal("INT")
    assert_equal 0, ruby.wait_exit
    assert_includes ruby.output, "exit of #{ruby.pid}"
    refute_path_exists File.join(ruby.base, "server.pid")
  end

  it "wraps the app in rackup's middleware, as it does for other servers" do
    ruby = rackup("-p", "0", files: { "config.ru" => "run ->(_) { raise 'shown by Rack' }" })
    assert_match(/shown by Rack/, fetch(ruby.port))
    ruby.wait_for(%r{"GET / HTTP/1.1" 500})
  end

  it "reads firebrick.toml, which is weaker than what was typed and stronger than rackup's defaults" do
    port = free_port
    files = { "config.ru" => APP, "firebrick.toml" => "port = #{port}\nhost = '127.0.0.1'\nworkers = 4\n" }
    ruby = rackup(files: files)
    assert_equal port, ruby.port
    assert_match(/warning: workers has no effect \(firebrick.toml:3\): the Ruby process/, ruby.output)
    ruby = rackup("-p", "0", files: files)
    refute_equal port, ruby.port
  end

  it "becomes the program in production, with the pid file" do
    ruby = rackup("-p", "0", "-E", "production", "-P", "server.pid", files: { "config.ru" => APP, "firebrick.toml" => "workers = 2" })
    response = fetch(ruby.port)
    refute_equal ruby.pid, Integer(response[/\d+/])
    assert_match(/production true/, response)
    assert_equal ruby.pid, Integer(File.read(File.join(ruby.base, "server.pid")))
    ruby.signal("TERM")
    assert_equal 0, ruby.wait_exit
    refute_path_exists File.join(ruby.base, "server.pid")
  end

  # As `gem install` of ruby3.4 beside Debian's Ruby, or a Ruby below /opt.
  {
    "rackup" => RubyProgram.rackup("-p", "0", "-E", "production").drop(1),
    "the gem's launcher" => [File.join(Server::ROOT, "exe/firebrick"), "-p", "0", "-e", "production"]
  }.each do |name, words|
    it "serves with the Ruby that runs #{name}, if `ruby` of the PATH is another one" do
      Dir.mktmpdir("firebrick-path") do |folder|
        another_ruby(folder, "another Ruby than the one that was typed")
        files = { "config.ru" => "run ->(_) { [200, {}, [RbConfig.ruby]] }" }
        ruby = program(command: [RbConfig.ruby, *words], files: files, env: { "PATH" => "#{folder}:#{ENV.fetch('PATH')}" })
        assert_equal RbConfig.ruby, fetch(ruby.port)
        # The file of the app has the last word.
        ruby.write("firebrick.toml", "ruby = 'ruby'")
        out, status = Open3.capture2e({ "XDG_RUNTIME_DIR" => File.join(ruby.base, "run") }, Server.binary, "reload", chdir: ruby.base)
        refute status.success?, out
        assert_match(/another Ruby than the one that was typed/, ruby.output)
        assert_equal RbConfig.ruby, fetch(ruby.port)
      end
    end
  end

  # As rackup -D, which leaves the folder when it has loaded the app.
  { "development" => /2:3 threads of Ruby/, "production" => /2 workers x 2:3 threads/ }.each do |environment, banner|
    it "finds the app's files from another folder, in #{environment}" do
      files = { "config.ru" => "Dir.chdir('/')\n#{APP}", "config/puma.rb" => "workers 2\nthreads 2, 3\n" }
      ruby = rackup("-p", "0", "-E", environment, files: files)
      assert_match(/pid \d+ #{environment}/, fetch(ruby.port))
      assert_match banner, ruby.output
    end
  end

  it "serves code that cannot be loaded again in this process, in production as well" do
    ruby = rackup("-p", "0", "-E", "production", "--builder", "run ->(_) { [200, {}, ['pid ' + Process.pid.to_s]] }")
    assert_equal "pid #{ruby.pid}", fetch(ruby.port)
  end

  it "yields the server to the handler's block, and returns when it is stopped" do
    ruby = program(<<~'RUBY')
      $stdout.sync = true
      require "rack"
      Rack.release.to_i >= 3 ? require("rackup") : require("rack/handler")
      handler = (defined?(Rackup) ? Rackup : Rack)::Handler.get("firebrick")
      app = ->(_) { [200, { "content-type" => "text/plain" }, ["object #{Process.pid}"]] }
      handler.run(app, Host: "127.0.0.1", Port: 0, Silent: true) do |server|
        require "net/http"
        puts "#{server.class} #{Net::HTTP.get(URI(server.url))}"
        Thread.new { sleep 0.1; server.stop }
      end
      puts "returned"
    RUBY
    assert_equal 0, ruby.wait_exit
    assert_equal "Firebrick::Server object #{ruby.pid}\nreturned\n", ruby.output
  end

  it "listens on a Unix socket where the host is a path" do
    ruby = rackup("-o", "./app.sock", files: { "config.ru" => APP })
    ruby.wait_for("Listening on unix://#{ruby.base}/app.sock")
    socket = UNIXSocket.new("#{ruby.base}/app.sock")
    socket.write("GET / HTTP/1.0\r\n\r\n")
    assert_includes socket.read, "pid #{ruby.pid}"
  end

  it "raises what the system says when the address is in use" do
    taken = TCPServer.new("127.0.0.1", 0)
    ruby = rackup("-o", "127.0.0.1", "-p", taken.addr[1].to_s, files: { "config.ru" => APP })
    assert_equal 1, ruby.wait_exit
    assert_match(/cannot listen on tcp:.*\(Errno::EADDRINUSE\)/, ruby.output)
  ensure
    taken&.close
  end

  SINATRA = <<~'RUBY'
    $stdout.sync = true
    require "sinatra/base"
    class App < Sinatra::Base
      set :server, :firebrick
      set :bind, "127.0.0.1"
      set :port, Integer(ENV["PORT_OF_TEST"])
      get("/") { "Sinatra #{Process.pid} #{settings.running_server.class}" }
      get("/quit") { self.class.quit!; "quit" }
    end
    App.run! { |server| puts "block: #{server.port == App.port}" }
    puts "run! has returned, running: #{App.running?.inspect}"
  RUBY

  it "serves Sinatra's run!, which Ctrl-C ends" do
    port = free_port
    ruby = program(SINATRA, env: { "PORT_OF_TEST" => port.to_s })
    ruby.wait_for("block: true")
    assert_equal "Sinatra #{ruby.pid} Firebrick::Server", fetch(port)
    assert_match(/taken the stage on #{port} for development with backup from .*irebrick/, ruby.output)
    ruby.signal("INT")
    assert_equal 0, ruby.wait_exit
    assert_includes ruby.output, "run! has returned"
  end

  it "ends Sinatra's run! by quit!" do
    port = free_port
    ruby = program(SINATRA, env: { "PORT_OF_TEST" => port.to_s })
    ruby.wait_for("block: true")
    assert_equal "quit", fetch(port, "/quit")
    assert_equal 0, ruby.wait_exit
    assert_includes ruby.output, "run! has returned"
  end

  it "says that Sinatra's port is in use" do
    taken = TCPServer.new("127.0.0.1", 0)
    ruby = program(SINATRA, env: { "PORT_OF_TEST" => taken.addr[1].to_s })
    refute_equal 0, ruby.wait_exit
    assert_includes ruby.output, "Someone is already performing on port #{taken.addr[1]}!"
  ensure
    taken&.close
  end
end
