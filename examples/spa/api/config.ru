# frozen_string_literal: true

require_relative "tasks"

run Tasks.new
