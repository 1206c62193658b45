# frozen_string_literal: true

require "etc"
require "optparse"
require "shellwords"
require_relative "failure"
require_relative "machine"
require_relative "peers"
require_relative "scenarios"
require_relative "server"

module Bench
  # The command line's options, validated.
  class Options
    ROOT = File.expand_path("../..", __dir__)
    PUMA = "puma -b tcp://127.0.0.1:{port} -w {cluster} -t {threads}:{threads} -e production {preload}"
    FIREBRICK = "{firebrick} -p {port} -w {workers} -t {threads}:{threads} -e production -q {dir}"
    HINT = "; build it with `make optimised`, name another with FIREBRICK=PATH, " \
           "or leave it out with --without firebrick"

    attr_reader :servers, :scenarios, :rounds, :seconds, :json, :pin, :shape

    def initialize(words, env: ENV)
      @firebrick = env.fetch("FIREBRICK") { File.join(ROOT, "target/dist/firebrick") }
      @servers = { "puma" => PUMA, "firebrick" => with_path(FIREBRICK) }
      @left_out = []
      @pin = true
      names = parser.parse(words)
      quick = names == ["quick"]
      @rounds ||= quick ? 1 : 3
      @seconds ||= quick ? 2 : 5
      @scenarios = select(quick ? QUICK : names)
      return if @servers.any? || @scenarios.all?(&:peers)

      raise Failure, "no server is left to measure: give --server NAME='COMMAND'"
    rescue OptionParser::ParseError => e
      raise Failure, "#{e.message}; --help lists the options"
    end

    # Raises Failure if a program that these scenarios and servers need is missing.
    def need_programs
      if pin && Etc.nprocessors < 2
        raise Failure, "servers and load generators are kept apart on processors 0 and 1, but there is one: give --no-pin"
      end

      programs = scenarios.flat_map { |one| [one.load.program, ("redis-server" if one.redis)] }
      programs.push("taskset") if pin
      programs.compact.uniq.each { |program| Machine.need(program) }
      scenarios.flat_map { |one| servers_for(one).to_a }.uniq.each do |name, peer|
        Machine.need(program(peer))
      rescue Failure => e
        raise Failure, "#{e.message}#{HINT if name == 'firebrick'}"
      end
    end

    # { name => Peer }: the command line's servers for an app, otherwise the installed ones of the scenario; none if their backend is
    # not installed.
    def servers_for(scenario)
      return servers.transform_values { |template| Peer.new(command: template) } unless scenario.peers
      return {} if absent?("backend", scenario.backend)

      scenario.peers.except(*@left_out).reject { |name, peer| absent?(name, peer) }
              .transform_values { |peer| Peer.new(command: with_path(peer.command), config: peer.config) }
    end

    # A line for each missing program, with what was left out of which scenarios.
    def notes
      left_out = scenarios.select(&:peers).flat_map do |one|
        everybody = one.peers.except(*@left_out).to_a << ["backend", one.backend]
        everybody.select { |name, peer| absent?(name, peer) }.map { |name, peer| [program(peer), "#{name} of #{one.name}"] }
      end
      left_out.group_by(&:first).map do |program, pairs|
        "#{program} was not found#{Machine.advice(program)}; left out: #{pairs.map(&:last).join(', ')}"
      end
    end

    private

    # Firebrick is never absent: without it there is nothing to compare, and `need_programs` fails.
    def absent?(name, peer)
      peer && name != "firebrick" && !Machine.there?(program(peer))
    end

    def program(peer) = peer.command.shellsplit.first

    def with_path(template) = template.sub("{firebrick}", @firebrick.shellescape)

    def parser
      OptionParser.new do |o|
        o.banner = "Usage: bench/run [options] [quick | SCENARIO...]   (a SCENARIO may end in *; none: all)"
        o.on("--server NAME=COMMAND", "one server more; {port} {workers} {threads} {dir} are filled in") { |text| add(text) }
        o.on("--without NAME", "leave out a server (puma, firebrick, h2o, nginx…)") { |name| remove(name) }
        o.on("--rounds N", Integer, "rounds, servers alternating in each (3)") { |n| @rounds = positive("--rounds", n) }
        o.on("--seconds N", Integer, "length of each timed load (5)") { |n| @seconds = positive("--seconds", n) }
        o.on("--shape WxT", /\A(\d+)x(\d+)\z/, "workers x threads, in place of the scenario's own") do |_, workers, threads|
          @shape = [workers, threads].map { |count| positive("--shape", count.to_i) }
        end
        o.on("--no-pin", "let servers and load generators use all processors") { @pin = false }
        o.on("--json FILE", "also write every sample as JSON") { |file| @json = file }
        o.on("--list", "list the scenarios and exit") { list }
        o.on("-h", "--help", "this text") { puts(o) || exit }
      end
    end

    def add(text)
      name, command = text.split("=", 2)
      raise Failure, "--server #{text}: expected NAME='COMMAND'" if command.to_s.strip.empty? || name.empty?

      @servers[name] = command
    end

    def remove(name)
      known = @servers.keys | @left_out | SCENARIOS.flat_map { |one| one.peers.to_h.keys }
      raise Failure, "--without #{name}: no such server; there are #{known.join(', ')}" unless known.include?(name)

      @servers.delete(name)
      @left_out << name
    end

    def positive(flag, number)
      raise Failure, "#{flag} #{number}: expected 1 or more" if number < 1

      number
    end

    def select(names)
      return SCENARIOS if names.empty?

      names.flat_map do |name|
        found = SCENARIOS.select { |scenario| File.fnmatch(name, scenario.name) }
        raise Failure, "no scenario is called #{name}: bench/run --list shows them" if found.empty?

        found
      end.uniq
    end

    def list
      SCENARIOS.each { |one| puts format("%-18s %-6s %s", one.name, one.shape_name, one.load) }
      exit
    end
  end
end
