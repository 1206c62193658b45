# frozen_string_literal: true

module Bench
  # What a person can put right: the message says what was expected and what to do.
  class Failure < StandardError
    # A number of an option that has to be one at least.
    def self.unless_positive(flag, number)
      raise self, "#{flag} #{number}: expected a whole number of at least 1, such as #{flag} 3" if number < 1

      number
    end
  end

  # A load generator that did not come to its end, as siege does now and then: worth another try.
  class Late < Failure; end
end
