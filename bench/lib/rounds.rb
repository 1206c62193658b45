# frozen_string_literal: true

require_relative "disturbance"
require_relative "ratio"

module Bench
  # The rounds of one scenario, without those that other programs disturbed.
  #
  # A disturbed round is repeated, up to as many times as there are rounds. When there are still fewer than LEAST undisturbed ones, the
  # least disturbed ones are used too, and `disturbed_kept` counts them.
  class Rounds
    # The figures of one server in one round. cpu_us: CPU per request; bytes: memory of an idle connection, or nil.
    Slice = Struct.new(:sample, :cpu_us, :bytes, keyword_init: true) do
      def rate = sample.seconds&.positive? ? sample.requests / sample.seconds : nil

      # Microseconds, milliseconds, bytes, or for :fairness the ratio of the 99th percentile to the median; nil where the load does not report it.
      def value(metric)
        case metric
        when :cpu then cpu_us
        when :p99 then sample.p99
        when :connection then bytes
        when :fairness then sample.p99 / sample.p50 if sample.p99 && sample.p50&.positive?
        end
      end
    end
    Round = Struct.new(:slices, :disturbance)

    LEAST = 3

    attr_reader :measured, :wanted, :metric

    # wanted: rounds; metric: the metric of ratios, :cpu, :p99, :connection or :fairness.
    def initialize(wanted, metric = :cpu)
      @wanted = wanted
      @metric = metric
      @measured = []
    end

    # Measures with the block: it gets the number of the round (from 1) and a Disturbance to add to, and returns { name => Slice }.
    def measure
      until quiet.size >= @wanted || @measured.size >= 2 * @wanted
        disturbance = Disturbance.new
        slices = yield(@measured.size + 1, disturbance) or break
        @measured << Round.new(slices, disturbance)
      end
      self
    end

    def disturbed = @measured.size - quiet.size

    # The rounds that count.
    def kept = quiet + spare

    def disturbed_kept = spare.size

    def slices(name) = kept.filter_map { |round| round.slices[name] }

    def median(name, &value) = Ratio.median(slices(name).map(&value))

    # The median of the rounds' own ratios, or nil if no round has both.
    def ratio(name, base)
      Ratio.of(kept.filter_map do |round|
        own, other = [name, base].map { |one| round.slices[one]&.value(@metric) }
        own.fdiv(other) if own && other&.positive?
      end)
    end

    # The metric of one server by itself: its median and quartiles, or nil.
    def own(name) = Ratio.of(slices(name).filter_map { |slice| slice.value(@metric) })

    # How much of the processors others used in the rounds that count: median cores of other programs and of other virtual machines.
    def others = %i[foreign steal].map { |what| Ratio.median(kept.map { |round| round.disturbance.public_send(what) }) }

    private

    def quiet = @measured.reject { |round| round.disturbance.disturbed? }

    def spare
      missing = [@wanted, LEAST].min - quiet.size
      return [] unless missing.positive?

      (@measured - quiet).min_by(missing) { |round| round.disturbance.foreign + round.disturbance.steal }
    end
  end
end
