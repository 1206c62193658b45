# frozen_string_literal: true

module Bench
  # What a person can put right: the message says what was expected and what to do.
  class Failure < StandardError; end

  # A load generator that did not come to its end, as siege does now and then: worth another try.
  class Late < Failure; end
end
