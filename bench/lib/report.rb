# frozen_string_literal: true

require_relative "interleaved"

module Bench
  # The result of one scenario: its rows of the table, its ratios, and notes about what went wrong.
  #
  # A figure is the median of the rounds that count. A ratio is the median of each round's own ratio, Firebrick's metric to that of
  # the peer in the row.
  class Report
    HEAD = ["scenario", "shape", "server", "measure", "value", "firebrick's share", "quartiles", "at most", "requests/s", "p50 ms", "p99 ms",
            "max ms", "errors", "PSS MiB at start", "PSS MiB"].freeze
    TEXTS = 4
    OURS = "firebrick"
    # The measure of each metric, and its decimals.
    MEASURES = { cpu: ["CPU µs/request", 2], p99: ["p99 ms", 2], connection: ["bytes/connection", 0], fairness: ["p99/p50", 3] }.freeze

    attr_reader :scenario

    def self.head = "#{line(HEAD)}\n|#{'---|' * TEXTS}#{'---:|' * (HEAD.size - TEXTS)}"

    def self.line(cells) = "| #{cells.join(' | ')} |"

    # run: an Interleaved that has run.
    def initialize(scenario, run)
      @scenario = scenario
      @run = run
      @rounds = run.rounds
    end

    # Cells of the table, one row for each server.
    def rows
      @run.names.map do |server|
        slices = @rounds.slices(server)
        [@scenario.name, @run.shape.join("x"), server, *(slices.empty? ? failed : figures(server, slices))]
      end
    end

    # { peer => Ratio }: Firebrick's metric in relation to the peer's; under OWN where it is compared with itself.
    def ratios
      return { OWN => @rounds.own(OURS) }.compact if @scenario.metric == :fairness

      (@run.names - [OURS]).to_h { |peer| [peer, @rounds.ratio(OURS, peer)] }.compact
    end

    # Lines for below the table.
    def notes
      failures = @run.failures.map { |server, failure| "#{@scenario.name}, #{server}: #{failure.message}" }
      killed = @run.killed.select { |_server, count| count.positive? }
      failures + killed.map { |server, count| "#{@scenario.name}, #{server}: #{count} processes had to be killed after TERM" } + [disturbance].compact
    end

    # True if a server or a request failed.
    def failed? = @run.failures.any? || @run.names.any? { |server| errors(server).positive? }

    def to_h
      rounds = @rounds.measured.map do |round|
        { foreign_cores: round.disturbance.foreign, steal_cores: round.disturbance.steal, disturbed: round.disturbance.disturbed?,
          servers: round.slices.transform_values { |slice| slice.sample.to_h.merge(cpu_us: slice.cpu_us, bytes_per_connection: slice.bytes) } }
      end
      { scenario: @scenario.name, shape: @run.shape, metric: @scenario.metric, ratios: ratios.transform_values(&:to_h), rounds: rounds,
        pss_mib: @run.memory, failures: @run.failures.transform_values(&:message) }
    end

    # Returns how much of the processors others used meanwhile: cores of other programs and of other virtual machines.
    def others = @rounds.others

    private

    def failed = [MEASURES.fetch(@scenario.metric).first, "failed", *Array.new(HEAD.size - 5, "")]

    def figures(server, slices)
      middle = ->(&value) { Ratio.median(slices.map(&value)) }
      text, places = MEASURES.fetch(@scenario.metric)
      [text, number(middle.call { |slice| slice.value(@scenario.metric) }, places), *share(server), number(middle.call(&:rate), 1),
       *%i[p50 p99 longest].map { |time| number(middle.call { |slice| slice.sample[time] }, 2) }, errors(server),
       memory(server, :start, &:first), memory(server, :load, &:max)]
    end

    # Ratio, quartiles and goal.
    def share(server)
      own = server == OURS
      ratio = ratios[own ? OWN : server]
      goal = own ? @scenario.wanted[OWN] || @scenario.limits[:connection] : @scenario.wanted[server]
      return ["–", "–", goal ? goal.to_s : "–"] unless ratio

      [number(ratio.median, 3), "#{number(ratio.low, 3)} to #{number(ratio.high, 3)}", number(goal, 2)]
    end

    def errors(server) = @rounds.slices(server).sum { |slice| slice.sample.errors }

    def memory(server, moment, &value)
      limit = @scenario.limits[moment] if server == OURS
      sizes = @run.memory[server]
      "#{number(sizes && value.call(sizes), 1)}#{" (at most #{limit})" if limit}"
    end

    def disturbance
      return if @rounds.disturbed.zero?

      kept = @rounds.disturbed_kept
      most = @rounds.measured.map { |round| round.disturbance.foreign + round.disturbance.steal }.max
      fate = kept.zero? ? "left out" : "#{kept} of them count, because too few were quiet: rough figures"
      format("%<name>s: %<count>d of %<all>d rounds were disturbed, by up to %<most>.2f cores of others; %<fate>s",
             name: @scenario.name, count: @rounds.disturbed, all: @rounds.measured.size, most: most, fate: fate)
    end

    # Fixed decimals for small numbers, thousands separators for large ones.
    def number(value, places)
      return "–" unless value
      return value.round.to_s.gsub(/(\d)(?=(\d{3})+\z)/, '\1,') if value >= 1_000

      format("%.#{places}f", value)
    end
  end
end
