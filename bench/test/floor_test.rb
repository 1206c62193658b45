# frozen_string_literal: true

# Tests of bench/floor: one short run, and wrong usage.
require "minitest/autorun"
require "open3"
require_relative "built"

class FloorTest < Minitest::Test
  include Built

  FLOOR = File.expand_path("../floor", __dir__)

  def test_every_server_is_compared_with_the_floor
    need_firebrick
    out, err, status = Open3.capture3({ "FIREBRICK" => BINARY }, FLOOR, "--rounds", "1", "static-page-64", "static-ab")
    assert status.success?, "#{out}#{err}"
    rows = out.lines.grep(/\A\| static/).map { |line| line.split("|").map(&:strip)[1..] }
    %w[static-page-64 static-ab].each do |scenario|
      ratios = rows.select { |row| row[0] == scenario }.to_h { |row| [row[1], row[3].to_f] }
      assert_in_delta 1.0, ratios.fetch("floor")
      assert_operator ratios.fetch("firebrick"), :>, 0
    end
  end

  def test_an_unknown_scenario_is_refused
    _, err, status = Open3.capture3(FLOOR, "sing")
    refute status.success?
    assert_match(/no scenario is called sing/, err)
  end
end
