# frozen_string_literal: true

module Bench
  # A median ratio, and the quartiles around it.
  Ratio = Struct.new(:median, :low, :high, :rounds, keyword_init: true) do
    # Returns the Ratio of the rounds' own ratios; nil without any.
    def self.of(ratios)
      sorted = ratios.sort
      return if sorted.empty?

      new(median: quantile(sorted, 0.5), low: quantile(sorted, 0.25), high: quantile(sorted, 0.75), rounds: sorted.size)
    end

    def self.median(values)
      sorted = values.compact.sort
      sorted.empty? ? nil : quantile(sorted, 0.5)
    end

    # Interpolates linearly between two values.
    def self.quantile(sorted, part)
      at = part * (sorted.size - 1)
      sorted[at.floor] + ((sorted[at.ceil] - sorted[at.floor]) * (at - at.floor))
    end
  end
end
