# frozen_string_literal: true

module Firebrick
  class PumaFile
    # Encodes calls as words of a message: file, line, method, 1 for a block plus 2 under a condition, the number of
    # arguments, and the arguments. A value is a letter for its kind and its text; the parts of lists and hashes follow.
    module Words
      # The depth of nested lists that is encoded; the front reads no deeper.
      DEPTH = 12

      LETTERS = { Float => "d", Symbol => "y" }.freeze

      module_function

      def of_call(call)
        values = call.arguments.flat_map { |argument| of(argument, 0) }
        about = (call.block ? 1 : 0) + (call.conditional ? 2 : 0)
        [call.file, call.line, call.name, about, call.arguments.length, *values]
      end

      def of(value, depth)
        case value
        when nil, true, false then [{ nil => "n", true => "t", false => "f" }[value]]
        when Integer then integer(value)
        when Float, Symbol, String then ["#{LETTERS[value.class] || 's'}#{value}"]
        when Array, Hash then depth < DEPTH ? parts(value, depth + 1) : ["o#{value.class}"]
        else other(value)
        end
      end

      def parts(value, depth)
        inside = value.to_a.flatten(value.is_a?(Hash) ? 1 : 0)
        ["#{value.is_a?(Hash) ? 'h' : 'l'}#{value.length}", *inside.flat_map { |one| of(one, depth) }]
      end

      # The front's integers have 64 bits.
      def integer(value)
        value.bit_length < 64 ? ["i#{value}"] : ["s#{value}"]
      end

      # Paths and durations are sent as text. The front has no use for callable objects.
      def other(value)
        return ["s#{value.to_path}"] if value.respond_to?(:to_path)
        return ["s#{value.to_str}"] if value.respond_to?(:to_str)
        return of(value.to_f, 0) if value.is_a?(Numeric) || value.class.to_s == "ActiveSupport::Duration"

        ["o#{value.class}"]
      end
    end
  end
end
