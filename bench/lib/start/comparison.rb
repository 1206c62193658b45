# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path("../../../test", __dir__))
require "fileutils"
require "socket"
require "tmpdir"
require "minitest"
require "support/rails_app"
require "support/redmine/instance"
require_relative "../failure"
require_relative "../machine"
require_relative "../process_tree"
require_relative "../program"
require_relative "../ratio"

module Bench
  module Start
    # Starts of programs, in turn.
    #
    # 1. A server has started when it has answered a request with 200; it is asked each millisecond. Ruby alone has when it has loaded the app.
    # 2. Files are in the kernel's cache: the first start of each is not counted.
    # 3. A ratio is the median of the ratios of starts that followed each other.
    class Comparison
      PUMA = "exec puma -C - -q -b tcp://127.0.0.1:%<port>d -e production -t 1:5"
      NGINX = "exec nginx -p . -c nginx-%<port>d.conf"
      APP = "exec %<firebrick>s serve . -b tcp://127.0.0.1:%<port>d -e production -t 1:5 -w 1 -q --control off"
      SITE = "exec %<firebrick>s serve . --root . -b tcp://127.0.0.1:%<port>d -q --control off"
      RAILS = %(exec ruby -e 'require "./config/environment"')
      RACKUP = %(exec ruby -e 'require "rack"; Rack::Builder.parse_file("config.ru")')

      # Commands by name.
      SUBJECTS = {
        "site" => { "nginx" => NGINX, "firebrick" => SITE },
        "hello" => { "ruby alone" => RACKUP, "firebrick" => APP, "puma" => PUMA },
        "rails" => { "ruby alone" => RAILS, "firebrick" => APP, "puma" => PUMA },
        "redmine" => { "ruby alone" => RAILS, "firebrick" => APP, "puma" => PUMA }
      }.freeze
      WITHIN = 60
      PAUSE = 0.001
      ENVIRONMENT = { **RailsApp::ENVIRONMENT, "RUBYOPT" => "-W0", "COMPILED_GEMS" => nil, "RACK_ENV" => "production", "RAILS_ENV" => "production",
                                               "PORT" => nil, "WEB_CONCURRENCY" => nil, "RAILS_MAX_THREADS" => nil }.freeze

      def initialize(only:, starts:)
        @subjects = SUBJECTS.select { |name, _| only.match?(name) }
        @starts = starts
      end

      def run
        @dir = Dir.mktmpdir("bench-start")
        puts "| | program | ms to the first response | ratio | quartiles |", "|---|---|---:|---:|---:|"
        @subjects.each { |name, commands| measure(name, commands) }
      ensure
        @redmine&.remove
        FileUtils.remove_entry(@dir) if @dir
      end

      private

      def measure(name, commands)
        folder = send(name)
        rounds = Array.new(@starts + 1) { commands.transform_values { |command| took(command, folder) } }.drop(1)
        first = commands.keys.first
        commands.each_key do |program|
          ratio = Ratio.of(rounds.map { |round| round[program] / round[first] })
          shown = program == first ? "| |" : format("%<median>.3f | %<low>.3f to %<high>.3f |", **ratio.to_h.slice(:median, :low, :high))
          puts format("| %s | %s | %.1f | %s", name, program, Ratio.median(rounds.map { |round| round[program] }) * 1000, shown)
        end
      end

      # Returns the seconds until the first response, or until Ruby has ended.
      def took(command, folder)
        port = Machine.free_port
        File.write(File.join(folder, "nginx-#{port}.conf"), nginx(port)) if command == NGINX
        words = format(command, port: port, firebrick: Program.built("dist", "release"))
        began = now
        pid = Process.spawn(ENVIRONMENT, words, chdir: folder, pgroup: true, %i[out err] => log)
        command.include?("%<port>d") ? wait_for_response(port, pid) : Process.wait(pid)
        now - began
      ensure
        finish(pid) if pid
      end

      def wait_for_response(port, pid)
        til = now + WITHIN
        until responds?(port)
          raise Failure, "no response:\n#{File.read(log)}" if now > til || Process.wait(pid, Process::WNOHANG)

          sleep PAUSE
        end
      end

      def responds?(port)
        socket = TCPSocket.new("127.0.0.1", port)
        socket.write("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        status = socket.gets.to_s[/ (\d+)/, 1] or return false
        raise Failure, "status #{status}:\n#{socket.read}" unless status == "200"

        true
      rescue SystemCallError
        false
      ensure
        socket&.close
      end

      # Ruby alone has ended.
      def finish(pid)
        Process.kill(:TERM, -pid)
        Process.wait(pid)
        tree = ProcessTree.new(pid)
        sleep PAUSE until tree.living.empty?
      rescue Errno::ESRCH, Errno::ECHILD
        nil
      end

      def log = File.join(@dir, "log")

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # The folders.

      def site = written("site", "index.html" => "<p>hello</p>\n")

      def hello = written("hello", "config.ru" => %(run ->(_) { [200, { "content-type" => "text/plain" }, ["hello"]] }\n))

      def rails
        controller = %(class HelloController < ActionController::Base\n  def show = render(plain: "hello")\nend\n)
        routes = %(Rails.application.routes.draw { root "hello#show" }\n)
        written("rails", RailsApp.files.merge("app/controllers/hello_controller.rb" => controller, "config/routes.rb" => routes))
      end

      def redmine
        raise Failure, "Redmine 5 is not installed: apt-get install redmine redmine-sqlite" unless ::Redmine.installed?

        @redmine = ::Redmine::Instance.new.build
        @redmine.dir
      end

      def written(name, files)
        File.join(@dir, name).tap do |folder|
          files.each do |path, text|
            FileUtils.mkdir_p(File.dirname(File.join(folder, path)))
            File.binwrite(File.join(folder, path), text)
          end
        end
      end

      def nginx(port)
        <<~CONF
          daemon off; worker_processes 1; pid nginx-#{port}.pid; error_log stderr;
          events {}
          http { access_log off; server { listen 127.0.0.1:#{port}; root .; } }
        CONF
      end
    end
  end
end
