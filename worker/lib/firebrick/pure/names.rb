# frozen_string_literal: true

require "firebrick/wire"

module Firebrick
  module Pure
    # The env keys of the field names that travel as one byte, by code.
    KEYS = ["", *Wire::NAMES].map do |name|
      key = name.upcase.tr("-", "_")
      (%w[CONTENT_TYPE CONTENT_LENGTH].include?(key) ? key : "HTTP_#{key}").freeze
    end.freeze
  end
end
