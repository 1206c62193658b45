# frozen_string_literal: true

require "ripper"

module Firebrick
  class PumaFile
    # Finds the names in a file whose call, or argument, depends on a condition. For these, the result of one evaluation
    # says nothing about another one: `worker_timeout 3600 if development?`.
    class Conditions
      # For these nodes the parts after the condition are conditional; the condition itself is always evaluated.
      BRANCHES = %i[if unless if_mod unless_mod elsif case ifop while until while_mod until_mod rescue_mod].freeze
      OPERATORS = %i[&& || and or].freeze

      def initialize(text)
        @names = Hash.new { |names, line| names[line] = [] }
        tree = Ripper.sexp(text)
        walk(tree, false) if tree
      end

      # Returns whether the name is conditional in that line; without a name, whether any is.
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

      # Returns the parts of a node, and whether each is evaluated only conditionally.
      def parts(node, kind)
        return node.each_with_index.map { |part, index| [part, index > 1] } if BRANCHES.include?(kind)
        return [[node[1], false], [node[3], true]] if kind == :binary && OPERATORS.include?(node[2])
        return [[node[1], false], [node[2], true], [node[3], true]] if kind == :begin_rescue

        node.map { |part| [part, kind == :rescue] }
      end

      # A call such as `workers production? ? 4 : 0` counts as conditional, because its argument depends on a condition.
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
