# frozen_string_literal: true

require "etc"

module Bench
  # The cost of a server: CPU time and memory of a process and all its descendants.
  #
  # 1. The tree is the root, its descendants, and every process of the root's session
  #    (including orphaned ones).
  # 2. CPU of a living process comes from its CPU clock (nanoseconds, threads that
  #    ended included); CPU of processes that ended comes from cutime + cstime of the
  #    parent that reaped them. A difference of two totals is therefore complete as
  #    long as dead children were reaped by a member of the tree.
  # 3. Memory is PSS: pages shared by n processes count 1/n each, so the sum over a
  #    tree is the memory that it uses.
  class ProcessTree
    TICKS = Etc.sysconf(Etc::SC_CLK_TCK).to_f
    Entry = Struct.new(:pid, :state, :ppid, :session, :reaped_seconds)

    attr_reader :root

    # root: pid of a process that leads its own session.
    def initialize(root)
      @root = root
    end

    # Entries of all members, zombies included.
    def members
      all = Dir.children("/proc").grep(/\A\d+\z/).filter_map { |name| self.class.stat(name) }
      children = all.group_by(&:ppid)
      found = all.select { |entry| entry.pid == root || entry.session == root }
      found.each { |entry| found.concat(children.fetch(entry.pid, []) - found) }
    end

    # Running members.
    def living
      members.reject { |entry| %w[Z X].include?(entry.state) }
    end

    # CPU seconds used so far by the tree, dead and reaped children included.
    def cpu_seconds
      members.sum { |entry| self.class.clock(entry.pid) + entry.reaped_seconds }
    end

    # How often the system has preempted one of its threads; without threads that have ended.
    def preemptions
      living.sum { |entry| Dir["/proc/#{entry.pid}/task/*/status"].sum { |path| self.class.preemptions(path) } }
    end

    # MiB of proportional set size of the tree.
    def pss_mib
      members.sum { |entry| self.class.pss_kib(entry.pid) } / 1024.0
    end

    # Kills the rest of the tree and returns the number of processes killed.
    def kill
      living.count do |entry|
        Process.kill(:KILL, entry.pid)
      rescue Errno::ESRCH
        false
      end
    end

    # One parsed /proc/PID/stat (see proc(5)), or nil when the process is gone.
    def self.stat(pid)
      fields = File.read("/proc/#{pid}/stat").rpartition(") ").last.split
      Entry.new(pid.to_i, fields[0], fields[1].to_i, fields[3].to_i, fields.values_at(13, 14).sum(&:to_i) / TICKS)
    rescue Errno::ENOENT, Errno::ESRCH
      nil
    end

    # CPU seconds of one process. The clock's number is Linux's MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED).
    def self.clock(pid)
      Process.clock_gettime((~pid << 3) | 2)
    rescue Errno::EINVAL, Errno::ESRCH
      0.0
    end

    # The same for one thread.
    def self.preemptions(path)
      File.read(path)[/^nonvoluntary_ctxt_switches:\s+(\d+)/, 1].to_i
    rescue Errno::ENOENT, Errno::ESRCH
      0
    end

    def self.pss_kib(pid)
      File.read("/proc/#{pid}/smaps_rollup")[/^Pss:\s+(\d+)/, 1].to_i
    rescue Errno::ENOENT, Errno::ESRCH
      0
    end
  end
end
