# frozen_string_literal: true

require "json"

module Bench
  # JSON for files that are kept in the repository: a line for each value at a given depth, so that a record stays short and its changes
  # are readable.
  module JsonLines
    module_function

    # depth: of the values that get a line each; 0 is the whole document.
    def generate(value, depth, indent = "")
      return JSON.generate(value) if depth.zero? || !value.respond_to?(:each) || value.empty?

      inner = "#{indent}  "
      parts = value.is_a?(Hash) ? value.map { |key, part| "#{JSON.generate(key.to_s)}: #{generate(part, depth - 1, inner)}" } : value.map { |part| generate(part, depth - 1, inner) }
      brackets = value.is_a?(Hash) ? "{}" : "[]"
      "#{brackets[0]}\n#{parts.map { |part| "#{inner}#{part}" }.join(",\n")}\n#{indent}#{brackets[1]}"
    end
  end
end
