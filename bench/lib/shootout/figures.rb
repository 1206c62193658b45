# frozen_string_literal: true

module Bench
  module Shootout
    # Medians, ratios, and the formatting of numbers.
    module Figures
      DIGITS = 3

      module_function

      def median(values)
        sorted = values.compact.sort
        return if sorted.empty?

        (sorted[(sorted.size - 1) / 2] + sorted[sorted.size / 2]) / 2.0
      end

      # Three significant digits, thousands separated; a dash for unknown.
      def number(value)
        return "–" unless value
        return value.to_s.gsub(/(\d)(?=(\d{3})+\z)/, '\1,') if value.is_a?(Integer)
        return "0" if value.zero?

        places = DIGITS - 1 - Math.log10(value.abs).floor
        rounded = value.round(places)
        places.positive? ? format("%.#{[DIGITS - 1 - Math.log10(rounded.abs).floor, 0].max}f", rounded) : number(rounded.to_i)
      end
    end
  end
end
