# frozen_string_literal: true

module Bench
  # What a person can put right: the message says what was expected and what to do.
  class Failure < StandardError; end
end
