# frozen_string_literal: true

require_relative "figures"

module Bench
  module Shootout
    # Whether a scenario reached its goals: compares the goals with the stored rounds (see Store).
    module Goals
      module_function

      # Returns lines for readers; empty without goals.
      def lines(document)
        document["goals"].to_a.map { |goal| line(goal, ratio(goal, document)) }.join("\n")
      end

      # Returns true if a goal was measured and missed.
      def missed?(document)
        document["goals"].to_a.any? { |goal| ratio(goal, document)&.then { |value| !reached?(goal, value) } }
      end

      def line(goal, value)
        verdict = if value.nil? then "not measured"
                  else
                    reached?(goal, value) ? "reached" : "missed"
                  end
        "- **#{verdict}**: #{goal['text']}: #{Figures.number(value)} (#{goal['at_most'] ? "at most #{goal['at_most']}" : "at least #{goal['at_least']}"})"
      end

      def reached?(goal, value) = goal["at_most"] ? value <= goal["at_most"] : value >= goal["at_least"]

      # Median of the rounds' ratios; nil if one of the two was not measured.
      def ratio(goal, document)
        pairs = rounds(goal["of"], document).zip(rounds(goal["to"], document)).map { |pair| pair.map { |round| round && round[goal["metric"].to_s] } }
        Figures.median(pairs.filter_map { |own, base| own.fdiv(base) if own && base&.positive? })
      end

      def rounds(name, document)
        document["tables"].flat_map { |table| table["rows"] }.find { |row| row["name"] == name }&.fetch("rounds") || []
      end
    end
  end
end
