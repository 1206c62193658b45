# frozen_string_literal: true

require "etc"
require "open3"
require "socket"
require_relative "failure"

module Bench
  # The measuring machine: its programs, its processors, a free port, its idle state.
  module Machine
    PACKAGES = { "wrk" => "wrk", "ab" => "apache2-utils", "siege" => "siege",
                 "redis-server" => "redis-server", "taskset" => "util-linux", "puma" => "puma",
                 "nginx" => "nginx", "h2o" => "h2o", "unicorn" => "unicorn", "curl" => "curl" }.freeze

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

    # CPU seconds that programs have used so far on all processors, and those that other virtual machines have taken.
    def busy_seconds
      fields = File.foreach("/proc/stat").first.split.drop(1).map(&:to_i)
      [fields.values_at(0, 1, 2, 5, 6).sum, fields[7]].map { |ticks| ticks.fdiv(Etc.sysconf(Etc::SC_CLK_TCK)) }
    end

    # The first version number that each of these programs prints: { name => number }.
    def versions(programs)
      programs.to_h do |name, words|
        text, = Open3.capture2e(*words)
        [name, text[/\d+\.\d+[\w.@-]*/] || "of unknown version"]
      end
    end

    # Raises the soft limit on descriptors where it is lower; servers and loads inherit it. No further than needed, because some servers
    # allocate memory for each possible descriptor.
    def allow_descriptors(count)
      soft, hard = Process.getrlimit(:NOFILE)
      return if soft >= count
      raise Failure, "#{count} descriptors are needed, and this process may have #{hard}: raise it (`ulimit -Hn #{count}` as root)" if hard < count

      Process.setrlimit(:NOFILE, count, hard)
    end

    # Returns one line about the machine's current load.
    def load_description
      average = File.read("/proc/loadavg").split.first(3).join(" ")
      format("load average %<average>s, other programs use %<busy>d %% of the processors", average: average, busy: (busy_share * 100).round)
    end

    # One line about the machine, for the head of a report.
    def description
      model = File.read("/proc/cpuinfo")[/^model name\s*:\s*(.+)/, 1] || "unknown processor"
      "#{Etc.nprocessors} x #{model}, Linux #{Etc.uname[:release][/\A[\d.]+/]}, #{RUBY_DESCRIPTION}"
    end
  end
end
