# frozen_string_literal: true

require "fileutils"
require "json"
require "open3"
require "socket"
require "support/postgresql"

class FiberSoak
  # The server, and the Redis and the PostgreSQL of its app, in a temporary folder.
  class Servers
    SETTINGS = <<~TOML
      fibers = %<fibers>d
      [timeouts]
      worker = "60s"
    TOML

    attr_reader :pid, :port, :log

    def initialize(dir, options)
      @dir = dir
      @options = options
      @log = File.join(dir, "log")
      @port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
      FileUtils.cp(File.join(__dir__, "config.ru"), dir)
      File.write(File.join(dir, "firebrick.toml"), format(SETTINGS, fibers: options[:fibers]))
    end

    def start
      env = { "SOAK_HOST" => "127.0.0.1:#{@port}", "SOAK_STRESS" => ("1" if @options[:stress]) }.merge(redis, database)
      @pid = spawn(env, PROGRAM, "serve", "-b", "tcp://127.0.0.1:#{@port}", "-w", @options[:workers].to_s, "-t", "#{@options[:threads]}:#{@options[:threads]}",
                   "-e", "production", chdir: @dir, %i[out err] => @log)
      600.times do
        return if stats&.fetch("workers")&.any?

        sleep 0.1
      end
      abort "#{PROGRAM} did not start:\n#{last_words}"
    end

    def stop
      [@pid, @redis].compact.each do |pid|
        Process.kill("TERM", pid)
        Process.wait(pid)
      rescue Errno::ESRCH, Errno::ECHILD
        nil
      end
      @postgresql&.finish
    end

    # Returns the output of `firebrick stats`; nil while the server does not respond.
    def stats = ask("stats")

    # Returns the deaths of workers, the newest first.
    def deaths = ask("deaths") || []

    # Returns whether it succeeded, and its output.
    def reload
      text, status = Open3.capture2e(PROGRAM, "reload", @dir)
      [status.success?, text]
    end

    def workers = (stats&.fetch("workers") || []).map { |worker| worker["pid"] }

    # Returns errors that the app has not raised on purpose.
    def complaints
      File.foreach(@log).grep(/firebrick|BUG|error|warn|fatal/i).grep_v(/soaked|soak\)|died|listening|ctrl-c/i)
    end

    def last_words = File.readlines(@log).last(40).join

    private

    def ask(command)
      text, _, status = Open3.capture3(PROGRAM, command, @dir, "--json")
      JSON.parse(text) if status.success?
    end

    def redis
      socket = File.join(@dir, "redis.sock")
      @redis = spawn("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", @dir, %i[out err] => File::NULL)
      50.times { File.socket?(socket) ? break : sleep(0.1) }
      { "SOAK_REDIS" => socket }
    rescue Errno::ENOENT
      warn "no redis-server: /redis is served without one"
      {}
    end

    def database
      return warn("no PostgreSQL: /database is served without one") || {} unless Postgresql.programs

      @postgresql = Postgresql.new
      @postgresql.start.create("soak")
      { "SOAK_DATABASE" => @postgresql.dir }
    end
  end
end
