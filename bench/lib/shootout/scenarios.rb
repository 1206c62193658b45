# frozen_string_literal: true

require_relative "chapter"
require_relative "scenarios/static_page"
require_relative "scenarios/six_workers"
require_relative "scenarios/json_api"
require_relative "scenarios/shapes"
require_relative "scenarios/sleepers"
require_relative "scenarios/instruments"

module Bench
  module Shootout
    CHAPTER = Chapter.new(
      name: "shoot-out", title: "Shoot-out", command: "bench/shootout",
      about: "The comparisons that people quote, measured again side by side by [`bench/shootout`](../README.md#the-shoot-out), which takes everybody from Debian's packages (and uses what is installed already).",
      scenarios: [StaticPage, SixWorkers, JsonApi, Shapes, Sleepers, Instruments].freeze
    )
  end
end
