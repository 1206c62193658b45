# frozen_string_literal: true

require "etc"
require "socket"
require_relative "failure"

module Bench
  # The measuring machine: its programs, its processors, a free port, its idle state.
  module Machine
    PACKAGES = { "wrk" => "wrk", "ab" => "apache2-utils", "siege" => "siege",
                 "redis-server" => "redis-server", "taskset" => "util-linux", "puma" => "puma",
                 "nginx" => "nginx", "h2o" => "h2o" }.freeze

    module_function

    # Raises Failure when a program of that name is not on the PATH.
    def need(program)
      return program if there?(program)

      raise Failure, "#{program} was not found#{advice(program)}"
    end

    def advice(program)
      PACKAGES.key?(program) ? ": install it (Debian: apt-get install #{PACKAGES[program]})" : ""
    end

    # Whether a program of that name is on the PATH.
    def there?(program)
      return File.executable?(program) if program.include?("/")

      ENV.fetch("PATH", "").split(":").any? { |folder| File.executable?(File.join(folder, program)) }
    end

    # The command words to start `words` on one processor; unchanged if cpu is nil.
    def pinned(cpu, words)
      cpu ? ["taskset", "-c", cpu.to_s, *words] : words
    end

    # A TCP port that is free at the moment.
    def free_port
      Socket.tcp_server_sockets("127.0.0.1", 0) { |sockets| return sockets.first.local_address.ip_port }
    end

    # Share of the processors' time (0.0 to 1.0) that other programs use at the moment.
    def busy_share(seconds = 0.5)
      before = cpu_times
      sleep seconds
      idle, total = cpu_times.zip(before).map { |now, then_| now - then_ }
      total.zero? ? 0.0 : 1.0 - (idle.to_f / total)
    end

    # Ticks that all processors together were idle (waiting for disks included), and ticks in all.
    def cpu_times
      fields = File.foreach("/proc/stat").first.split.drop(1).map(&:to_i)
      [fields[3] + fields[4], fields.first(8).sum]
    end

    # One line about the machine, for the head of a report.
    def description
      model = File.read("/proc/cpuinfo")[/^model name\s*:\s*(.+)/, 1] || "unknown processor"
      "#{Etc.nprocessors} x #{model}, Linux #{Etc.uname[:release]}, #{RUBY_DESCRIPTION}"
    end
  end
end
