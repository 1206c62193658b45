# frozen_string_literal: true

module Bench
  # An error that the user can fix: the message says what was expected and what to do.
  class Failure < StandardError
    # Raises unless an option's number is at least 1.
    def self.unless_positive(flag, number)
      raise self, "#{flag} #{number}: expected a whole number of at least 1, such as #{flag} 3" if number < 1

      number
    end
  end

  # A load generator that did not finish, as siege sometimes does: worth another attempt.
  class Late < Failure; end
end
