# frozen_string_literal: true

# Information about processes from /proc.

module Processes
  Info = Struct.new(:pid, :parent, :started, :state, keyword_init: true)

  module_function

  # All running processes, by pid. Zombies count as ended.
  def all
    Dir.children("/proc").grep(/\A\d+\z/).filter_map { |pid| info(pid.to_i) }.to_h { |info| [info.pid, info] }
  end

  def info(pid)
    stat = File.read("/proc/#{pid}/stat")
    fields = stat[(stat.rindex(")") + 2)..].split
    return if fields[0] == "Z" || fields[0] == "X"

    Info.new(pid: pid, state: fields[0], parent: fields[1].to_i, started: fields[19].to_i)
  rescue Errno::ENOENT, Errno::ESRCH
    nil
  end

  def alive?(info_or_pid)
    return !info(info_or_pid).nil? if info_or_pid.is_a?(Integer)

    info(info_or_pid.pid)&.started == info_or_pid.started
  end

  # A process and all its descendants, of +every+ process that runs.
  def tree(root, every = all)
    found = [every[root]].compact
    found.each { |one| found.concat(every.values.select { |other| other.parent == one.pid }) }
    found
  end

  # The templates of a front. It adopts workers whose template has died, too.
  def templates(front)
    tree(front).select { |one| one.parent == front && command(one.pid).include?("template") }
  end

  # Processes whose working directory is one of +dirs+ or below; includes those that were reparented.
  def in_directory(*dirs, every: all)
    every.values.select do |one|
      cwd = "#{File.readlink("/proc/#{one.pid}/cwd")}/"
      dirs.any? { |dir| cwd.start_with?("#{dir}/") }
    rescue SystemCallError
      false
    end
  end

  # Proportional set size of the processes, in bytes.
  def pss(infos)
    infos.sum { |one| rollup(one.pid, "Pss") }
  end

  # Memory that only this process has, in bytes.
  def private_bytes(pid)
    rollup(pid, "Private_Dirty") + rollup(pid, "Private_Clean")
  end

  def rollup(pid, key)
    File.read("/proc/#{pid}/smaps_rollup")[/^#{key}:\s+(\d+) kB/, 1].to_i * 1024
  rescue Errno::ENOENT, Errno::ESRCH
    0
  end

  def command(pid)
    File.read("/proc/#{pid}/cmdline").tr("\0", " ").strip
  rescue Errno::ENOENT, Errno::ESRCH
    ""
  end
end
