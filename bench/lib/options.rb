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
    FIREBRICK = "{firebrick} -p {port} -w {workers} -t {threads}:{threads} -e production -q {dir}"
    HINT = "; build it with `make optimised`, or name another with FIREBRICK=PATH"
    IODINE_HINT = ": build it from its source (bench/README.md), and name its command with IODINE='COMMAND'"
    ROUNDS = 9
    CHECK_ROUNDS = 5

    # record, check: whether figures are recorded, or compared with the recorded ones; folder: where the record is.
    attr_reader :names, :scenarios, :rounds, :seconds, :json, :pin, :shape, :record, :check, :folder

    def initialize(words, env: ENV)
      @firebrick = env.fetch("FIREBRICK") { File.join(ROOT, "target/dist/firebrick") }
      @apps = { "firebrick" => Peer.new(command: FIREBRICK), **Peers.apps(env) }
      @more = {}
      @left_out = []
      @pin = true
      @folder = File.join(ROOT, "bench")
      @names = parser.parse(words)
      quick = @names == ["quick"]
      @seconds ||= 1
      @scenarios = select(quick ? QUICK : @names)
      @rounds ||= default_rounds(quick)
      raise Failure, "--record and --check exclude each other" if record && check
      raise Failure, "--record and --check are for servers as they are compared: without --shape and --server" if (record || check) && (shape || @more.any?)
    rescue OptionParser::ParseError => e
      raise Failure, "#{e.message}; --help lists the options"
    end

    # Raises Failure if a program that these scenarios need is missing; missing peers are left out, see `notes`.
    def need_programs(scenarios = @scenarios)
      if pin && Etc.nprocessors < 2
        raise Failure, "servers and load generators are kept apart on processors 0 and 1, but there is one: give --no-pin"
      end

      programs = scenarios.flat_map { |one| [one.load.program, ("redis-server" if one.redis)] }
      programs.push("curl")
      programs.push("taskset") if pin
      (programs.compact.uniq - [@firebrick]).each { |program| Machine.need(program) }
      raise Failure, "#{@firebrick} was not found#{HINT}" unless Machine.there?(@firebrick)

      @more.each_value { |peer| Machine.need(program(peer)) }
      Machine.allow_descriptors(scenarios.map(&:descriptors).max || 0)
    end

    # { name => Peer }: Firebrick first, then those peers of the scenario that are installed, then the command line's; empty if a backend
    # or a gem is not installed, or no peer is.
    def servers_for(scenario)
      return {} if absent?("backend", scenario.backend) || gemless?(scenario)

      all(scenario).reject { |name, peer| absent?(name, peer) }
                   .transform_values { |peer| Peer.new(command: with_path(peer.command), config: peer.config) }
    end

    # A line for each missing program, with what was left out of which scenarios.
    def notes
      left_out = scenarios.flat_map do |one|
        everybody = all(one).to_a
        everybody << ["backend", one.backend] if one.backend
        missing = everybody.select { |name, peer| absent?(name, peer) }.map { |name, peer| [missing_text(name, peer), "#{name} of #{one.name}"] }
        gemless?(one) ? missing << ["the gem #{one.gem} was not found: install it (gem install #{one.gem})", one.name] : missing
      end
      left_out.group_by(&:first).map { |text, pairs| "#{text}; left out: #{pairs.map(&:last).join(', ')}" }
    end

    # { name => words } of programs whose versions are recorded with the figures.
    def version_commands
      servers = scenarios.flat_map { |one| servers_for(one).keys }.uniq - @more.keys
      words = { "firebrick" => [@firebrick, "--version"], "puma" => %w[puma --version], "unicorn" => %w[unicorn --version],
                "iodine" => Peers.iodine&.shellsplit&.push("-v"), "h2o" => %w[h2o --version], "nginx" => %w[nginx -v] }
      loads = scenarios.map { |one| one.load.program } + scenarios.map { |one| ("redis-server" if one.redis) }
      words.slice(*servers).merge({ "wrk" => %w[wrk -v], "ab" => %w[ab -V], "redis-server" => %w[redis-server --version] }.slice(*loads))
    end

    private

    def default_rounds(quick)
      return CHECK_ROUNDS if check

      quick ? 3 : ROUNDS
    end

    # All servers of a scenario, installed or not; nil for one whose command is not known.
    def all(scenario)
      return scenario.peers.except(*@left_out) if scenario.peers

      @apps.slice("firebrick", *scenario.beside).except(*@left_out).merge(@more)
    end

    # Firebrick is never absent: without it there is nothing to compare, and `need_programs` fails.
    def absent?(name, peer)
      return name == "iodine" unless peer

      name != "firebrick" && !Machine.there?(program(peer))
    end

    def missing_text(name, peer)
      peer ? "#{program(peer)} was not found#{Machine.advice(program(peer))}" : "#{name} was not found#{IODINE_HINT}"
    end

    # Returns whether the gem that the app needs is missing for the `ruby` of the PATH, which the servers use.
    def gemless?(scenario)
      return false unless scenario.gem

      @gems ||= Hash.new { |known, gem| known[gem] = system("ruby", "-e", "gem ARGV[0]", gem, out: File::NULL, err: File::NULL) }
      !@gems[scenario.gem]
    end

    def program(peer) = peer.command.shellsplit.first

    def with_path(template) = template.sub("{firebrick}", @firebrick.shellescape)

    def parser
      OptionParser.new do |o|
        o.banner = "Usage: bench/run [options] [quick | SCENARIO...]   (a SCENARIO may end in *; none: all but sweep-*)"
        o.on("--record", "write the figures into bench/RESULTS.md and bench/record.json") { @record = true }
        o.on("--check", "compare with bench/record.json: exit 1 when a ratio is more than 10 % worse") { @check = true }
        o.on("--folder DIR", "where RESULTS.md and record.json are (bench)") { |dir| @folder = File.expand_path(dir) }
        o.on("--server NAME=COMMAND", "one server more; {port} {workers} {threads} {dir} are filled in") { |text| add(text) }
        o.on("--without NAME", "leave out a peer (puma, iodine, unicorn, h2o, nginx…)") { |name| remove(name) }
        o.on("--rounds N", Integer, "rounds, all servers in each (#{ROUNDS}; with --check #{CHECK_ROUNDS})") { |n| @rounds = positive("--rounds", n) }
        o.on("--seconds N", Integer, "length of a slice of load (1)") { |n| @seconds = positive("--seconds", n) }
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

      @more[name] = Peer.new(command: command)
    end

    def remove(name)
      raise Failure, "--without firebrick: everything is compared with it; bench/compare compares any servers" if name == "firebrick"

      known = @apps.keys | @more.keys | @left_out | SCENARIOS.flat_map { |one| one.peers.to_h.keys }
      raise Failure, "--without #{name}: no such server; there are #{known.join(', ')}" unless known.include?(name)

      @more.delete(name)
      @left_out << name
    end

    def positive(flag, number)
      raise Failure, "#{flag} #{number}: expected 1 or more" if number < 1

      number
    end

    def select(names)
      return TABLE if names.empty?

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
