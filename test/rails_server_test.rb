# frozen_string_literal: true

# `rails server -u firebrick` with a generated app.

require "open3"
require "support/program_case"
require "support/quick_rails"

class RailsServerTest < ProgramCase
  in_turn!

  CONTROLLER = <<~'RUBY'
    class PagesController < ActionController::Base
      def show
        render plain: "#{Greeting::TEXT} #{Process.pid} #{Rails.env} #{request.env['rack.multiprocess']}"
      end

      def stop
        answer = "unchanged"
        binding.irb
        render plain: answer
      end
    end
  RUBY

  FILES = {
    "Gemfile" => %(gem "rails"\ngem "sqlite3"\n),
    "app/controllers/pages_controller.rb" => CONTROLLER,
    "app/models/greeting.rb" => %(class Greeting; TEXT = "hello"; end\n),
    "config/routes.rb" => %(Rails.application.routes.draw { root "pages#show"; get "stop", to: "pages#stop" }\n)
  }.freeze

  class << self
    # A generated app to copy; nil where Rails is not installed.
    def app
      @app ||= generate
      @app unless @app == :none
    end

    def over(reporter)
      super
      FileUtils.remove_entry(File.dirname(@app)) if @app && @app != :none
    end

    private

    def generate
      return :none unless system("rails", "--version", out: File::NULL, err: File::NULL)

      folder = Dir.mktmpdir("firebrick-rails")
      out, status = Open3.capture2e({ "RUBYOPT" => "-W0" }, "rails", "new", "blog", "--minimal", "--skip-bundle", "--skip-git", "--skip-javascript", chdir: folder)
      raise out unless status.success?

      File.join(folder, "blog")
    rescue Errno::ENOENT
      :none
    end
  end

  def before_setup
    super
    skip "Rails is not installed (apt-get install ruby-rails ruby-sqlite3)" unless self.class.app
  end

  def rails_server(*arguments, files: {}, using: %w[-u firebrick], **options)
    env = { **QuickRails.environment, "SECRET_KEY_BASE" => "x" * 64, "BUNDLE_APP_CONFIG" => "/nonexistent", "IRBRC" => "/dev/null" }
    ruby = ENV.fetch("RUBY", "ruby")
    own = files
    files = Dir.glob("**/*", File::FNM_DOTMATCH, base: self.class.app).select { |file| File.file?(File.join(self.class.app, file)) }
    files = files.to_h { |file| [file, File.binread(File.join(self.class.app, file))] }.merge(FILES, own)
    # The generated files need gems that watch files and build assets; and in production, since 7.1, TLS.
    files.delete("config/initializers/assets.rb")
    files.select { |file,| file.start_with?("config/environments/") }.each_value { |text| text.gsub!(/^.*(EventedFileUpdateChecker|config\.(assets|force_ssl)).*$/, "") }
    program(command: [ruby, "bin/rails", "server", *using, *arguments], files: files, env: env.merge(options.delete(:env) || {}), **options)
  end

  def pid_file(server)
    File.join(server.base, "tmp/pids/server.pid")
  end

  it "serves the app in its own process, logs to the terminal, keeps the pid file right, serves changed classes, ends by Ctrl-C" do
    port = free_port
    server = rails_server("-p", port.to_s, "-b", "127.0.0.1", terminal: true)
    assert_equal "hello #{server.pid} development false", fetch_soon(port)
    server.wait_for(%r{Started GET "/" for 127\.0\.0\.1})
    server.wait_for(/Completed 200 OK/)
    assert_equal server.pid, Integer(File.read(pid_file(server)))

    server.write("app/models/greeting.rb", %(class Greeting; TEXT = "changed"; end\n))
    later = Time.now + 5
    File.utime(later, later, File.join(server.base, "app/models/greeting.rb"))
    assert wait_until(within: 20) { fetch(port) == "changed #{server.pid} development false" }

    server.type("\u0003")
    assert_equal 0, server.wait_exit
    assert_match(/Exiting/, server.output)
    refute_path_exists pid_file(server)
  end

  it "has binding.irb at its terminal" do
    port = free_port
    server = rails_server("-p", port.to_s, "-b", "127.0.0.1", terminal: true, env: { "THREADS" => "1" })
    fetch_soon(port)
    client = Thread.new { fetch(port, "/stop") }
    server.wait_for(/irb\(.*?\):\d+/)
    server.type("answer = 'ty' + 'ped'\n")
    server.wait_for(/irb\(.*?\):\d+/)
    server.type("exit\n")
    assert_equal "typed", client.value
    server.type("\u0003")
    assert_equal 0, server.wait_exit
  end

  it "listens on Rails' port unless firebrick.toml says otherwise" do
    port = free_port
    server = rails_server("-P", "other.pid", env: { "PORT" => port.to_s })
    assert_equal port, server.port
    assert_path_exists File.join(server.base, "other.pid")
  end

  it "does as config/puma.rb says, which is evaluated once" do
    puma_rb = <<~'RUBY'
      $stderr.puts "evaluated in #{Process.pid}"
      threads 2, 3
      bind "tcp://127.0.0.1:0"
      set_remote_address "10.1.2.3"
      before_fork { $stderr.puts "forked" }
      before_thread_start { $stderr.puts "thread" }
      after_booted { $stderr.puts "booted in #{Process.pid}" }
      after_stopped { $stderr.puts "stopped in #{Process.pid}" }
      lowlevel_error_handler { |error| [500, {}, ["handled #{error.message}"]] }
      plugin :tmp_restart
    RUBY
    server = rails_server(files: { "config/puma.rb" => puma_rb })
    assert_equal "hello #{server.pid} development false", fetch(server.port)
    server.signal("INT")
    assert_equal 0, server.wait_exit
    assert_match(%r{Started GET "/" for 10\.1\.2\.3}, server.output)
    lines = server.output.lines(chomp: true)
    %w[evaluated booted stopped].each { |what| assert_equal 1, lines.count("#{what} in #{server.pid}"), what }
    assert_includes 2..3, lines.count("thread")
    refute_includes lines, "forked"
    refute_match(/plugin/, server.output)
  end

  it "restarts the process when it is told to by `rails restart`" do
    port = free_port
    server = rails_server("-p", port.to_s, "-b", "127.0.0.1", files: { "config/initializers/one.rb" => "Greeting = Struct.new(:text)\nGreeting::TEXT = 'before'" })
    assert_equal "before #{server.pid} development false", fetch_soon(port)
    server.write("config/initializers/one.rb", "Greeting = Struct.new(:text)\nGreeting::TEXT = 'after'")
    server.write("tmp/restart.txt", "")
    assert wait_until(within: 30) { fetch_soon(port) == "after #{server.pid} development false" }
    assert_equal server.pid, Integer(File.read(pid_file(server)))
    server.signal("INT")
    assert_equal 0, server.wait_exit
  end

  WITH_RAILS = <<~'RUBY'
    seen = [defined?(Rails), Rails.env, Rails.root.basename.to_s.empty?, Rails.application.class.name].join(" ")
    workers Rails.env.production? ? 2 : 1
    on_worker_boot { File.write(Rails.root.join("seen.log"), seen) }
    bind "tcp://127.0.0.1:0"
  RUBY

  it "has Rails in config/puma.rb, in production, too" do
    server = rails_server("-e", "production", files: { "config/puma.rb" => WITH_RAILS })
    assert_match(/\Ahello \d+ production true\z/, fetch(server.port))
    assert_match(/2 workers/, server.output)
    seen = File.join(server.base, "seen.log")
    assert(wait_until { File.exist?(seen) && !File.empty?(seen) })
    assert_equal "constant production false Blog::Application", File.read(seen)
    server.signal("TERM")
    assert_equal 0, server.wait_exit
  end

  it "has Rails in config/puma.rb where the program was started without Rails" do
    config = WITH_RAILS.sub("defined?(Rails)", "defined?(Rails).inspect")
    server = rails_server(using: [], files: { "config/puma.rb" => config, "bin/rails" => "exec ENV.fetch('FIREBRICK_PROGRAM'), '-e', 'production'" },
                          env: { **RubyProgram.environment, **Server.ruby_files })
    assert_match(/\Ahello \d+ production true\z/, fetch(server.port))
    server.signal("TERM")
    assert_equal 0, server.wait_exit
    assert_equal "nil production false Blog::Application", File.read(File.join(server.base, "seen.log"))
  end

  it "is the server of `rails server` where its gem is in the place of Puma" do
    gemfile = %(gem "rails"\ngem "sqlite3"\ngem "firebrick", path: "#{Server::ROOT}"\n)
    server = rails_server(using: [], files: { "Gemfile" => gemfile, "config/puma.rb" => "bind 'tcp://127.0.0.1:0'" })
    assert_equal "hello #{server.pid} development false", fetch(server.port)
    server.signal("INT")
    assert_equal 0, server.wait_exit
  end

  # As -d, after which the process is no longer in the app's folder.
  LEAVING = 'Rails.application.config.after_initialize { Dir.chdir("/") } if defined?(Rails::Server)'

  it "becomes the program in production, which keeps the pid file" do
    port = free_port
    leaving = { "config/initializers/leaving.rb" => LEAVING }
    server = rails_server("-p", port.to_s, "-b", "127.0.0.1", "-e", "production", "-P", "tmp/pids/server.pid", env: { "WEB_CONCURRENCY" => "2" }, files: leaving)
    response = fetch_soon(port)
    assert_match(/\Ahello \d+ production true\z/, response)
    refute_equal server.pid, Integer(response[/\d+/])
    assert_match(/2 workers/, server.output)
    assert_equal server.pid, Integer(File.read(pid_file(server)))
    server.signal("TERM")
    assert_equal 0, server.wait_exit
    refute_path_exists pid_file(server)
  end
end
