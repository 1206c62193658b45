# frozen_string_literal: true

# Refuses a suite that has a constant from two of its modules: the order of `include` would say which app it serves, and a test of a slow
# app that serves a fast one passes now and then.

module AmbiguousConstants
  FOLDER = File.expand_path("..", __dir__)

  module_function

  # Ends the program with the names.
  def check
    found = ObjectSpace.each_object(Class).select { |suite| suite < Minitest::Test }.flat_map { |suite| ambiguous(suite) }
    abort "test/run: constants of a suite with two meanings; name one of them otherwise:\n#{found.sort.join("\n")}" unless found.empty?
  end

  def ambiguous(suite)
    modules = suite.included_modules.select { |one| of_tests?(one) }
    own = suite.ancestors.grep(Class).flat_map { |one| of_tests?(one) ? one.constants(false) : [] }
    meanings = (modules.flat_map { |one| one.constants(false) } - own).tally.select { |_, count| count > 1 }
    meanings.keys.map { |name| "  #{name} in #{suite}: #{modules.select { |one| one.const_defined?(name, false) }.join(', ')}" }
  end

  def of_tests?(one)
    one.name && Object.const_source_location(one.name)&.first.to_s.start_with?(FOLDER)
  end
end
