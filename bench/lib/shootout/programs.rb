# frozen_string_literal: true

require "open3"
require_relative "../failure"
require_relative "../machine"

module Bench
  module Shootout
    # The programs that take part: their Debian packages, whether they are installed, their versions.
    module Programs
      # package: Debian's; version: the command that prints it; a Ruby library has no executable of that name.
      Program = Struct.new(:package, :version, :library, keyword_init: true)

      ALL = {
        "ruby" => Program.new(package: "ruby", version: %w[ruby --version]),
        "webrick" => Program.new(package: "ruby-webrick", version: ["ruby", "-rwebrick", "-e", "puts WEBrick::VERSION"], library: "webrick"),
        "rack" => Program.new(package: "ruby-rack", version: ["ruby", "-rrack", "-e", "puts Rack.release"], library: "rack"),
        "ruby-redis" => Program.new(package: "ruby-redis", version: ["ruby", "-rredis", "-e", "puts Redis::VERSION"], library: "redis"),
        "puma" => Program.new(package: "puma", version: %w[puma --version]),
        "unicorn" => Program.new(package: "unicorn", version: %w[unicorn --version]),
        "passenger" => Program.new(package: "passenger", version: %w[passenger --version]),
        "nginx" => Program.new(package: "nginx", version: %w[nginx -v]),
        "h2o" => Program.new(package: "h2o", version: %w[h2o --version]),
        "node" => Program.new(package: "nodejs", version: %w[node --version]),
        "go" => Program.new(package: "golang", version: %w[go version]),
        "redis-server" => Program.new(package: "redis-server", version: %w[redis-server --version]),
        "siege" => Program.new(package: "siege", version: %w[siege --version]),
        "ab" => Program.new(package: "apache2-utils", version: %w[ab -V]),
        "wrk" => Program.new(package: "wrk", version: %w[wrk -v]),
        "h2load" => Program.new(package: "nghttp2-client", version: %w[h2load --version]),
        "taskset" => Program.new(package: "util-linux", version: %w[taskset --version])
      }.freeze

      # The line of the output that has the version: the first with a number such as 1.2.
      NUMBERED = /\d+\.\d/

      module_function

      # Names of ALL that are not installed.
      def missing(names = ALL.keys) = names.reject { |name| there?(name) }

      def there?(name)
        @there ||= {}
        @there.fetch(name) { @there[name] = look_for(name) }
      end

      def look_for(name)
        library = ALL[name]&.library
        library ? system("ruby", "-r#{library}", "-e", "", %i[out err] => File::NULL) == true : Machine.there?(name)
      end

      # The command that installs them.
      def apt(names)
        "apt-get install --no-install-recommends #{names.map { |name| ALL.fetch(name).package }.join(' ')}"
      end

      # Installs missing packages with apt, with its output shown; raises Failure when apt fails.
      def install
        names = missing
        return puts("Everything is installed.") if names.empty?

        words = [*(%w[sudo] unless Process.uid.zero?), *apt(names).sub("install", "install -y").split]
        puts words.join(" ")
        system({ "DEBIAN_FRONTEND" => "noninteractive" }, *words) or
          raise Failure, "apt did not install #{names.join(', ')}: read what it says above (`apt-get update` first?), or run without --install"
        @there = {}
      end

      # One line; nil for a program that is not installed.
      def version(name) = there?(name) ? version_line(ALL.fetch(name).version) : nil

      # The line with a number in a command's output.
      def version_line(words)
        text, = Open3.capture2e(*words)
        text.lines.map(&:strip).find { |line| line.match?(NUMBERED) }&.slice(0, 100)
      end
    end
  end
end
