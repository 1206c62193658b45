# frozen_string_literal: true

require "ripper"

module Firebrick
  class PumaFile
    # Which names of a file stand where it depends on something whether, or with which value, they are called. The
    # values of one evaluation say nothing of another one there: `worker_timeout 3600 if development?`.
    class Conditions
      # Of these the parts that follow the condition; the condition itself is always evaluated.
      BRANCHES = %i[if unless if_mod unless_mod elsif case ifop while until while_mod until_mod rescue_mod].freeze
      OPERATORS = %i[&& || and or].freeze

      def initialize(text)
        @names = Hash.new { |names, line| names[line] = [] }
        tree = Ripper.sexp(text)
        walk(tree, false) if tree
      end

      # Whether the name stands under a condition in that line; any name of it without one.
      def conditional?(line, name)
        found = @names.fetch(line, [])
        name ? found.include?(name.to_s) : found.any?
      end

      private

      def walk(node, conditional)
        return unless node.is_a?(Array)

        kind = node.first
        return note(node) if conditional && %i[@ident @const @fid].include?(kind)
        return walk_call(node, conditional) if %i[command method_add_arg].include?(kind)

        parts(node, kind).each { |part, under| walk(part, conditional || under) }
      end

      def note(token)
        @names[token[2].first] << token[1]
      end

      # The parts of a node, and whether they are evaluated only sometimes.
      def parts(node, kind)
        return node.each_with_index.map { |part, index| [part, index > 1] } if BRANCHES.include?(kind)
        return [[node[1], false], [node[3], true]] if kind == :binary && OPERATORS.include?(node[2])
        return [[node[1], false], [node[2], true], [node[3], true]] if kind == :begin_rescue

        node.map { |part| [part, kind == :rescue] }
      end

      # A call whose arguments depend on something, as in `workers production? ? 4 : 0`, has another value then.
      def walk_call(node, conditional)
        name = called(node)
        note(name) if name && !conditional && node.drop(2).any? { |part| chooses?(part) }
        node.drop(1).each { |part| walk(part, conditional) }
      end

      def called(node)
        name = node[1]
        name = name[1] if name.is_a?(Array) && name.first == :fcall
        name if name.is_a?(Array) && %i[@ident @fid].include?(name.first)
      end

      def chooses?(node)
        return false unless node.is_a?(Array)
        return false if %i[brace_block do_block].include?(node.first)

        %i[ifop if unless case].include?(node.first) || node.any? { |part| chooses?(part) }
      end
    end
  end
end
