# frozen_string_literal: true

module Firebrick
  VERSION = "0.1.0"
end
