# frozen_string_literal: true

require_relative "notes"

run Notes.new(ENV.fetch("REDIS_URL", "redis://127.0.0.1:6379/0"))
