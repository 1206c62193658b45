# frozen_string_literal: true

require_relative "scenarios/static_page"
require_relative "scenarios/six_workers"
require_relative "scenarios/json_api"
require_relative "scenarios/shapes"
require_relative "scenarios/sleepers"
require_relative "scenarios/instruments"

module Bench
  module Shootout
    # In the order of the report.
    SCENARIOS = [StaticPage, SixWorkers, JsonApi, Shapes, Sleepers, Instruments].freeze
  end
end
