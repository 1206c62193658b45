# frozen_string_literal: true

# Tests of bench/choose: one short run of all four ways, and wrong usage.
require "minitest/autorun"
require "open3"

class ChooseTest < Minitest::Test
  CHOOSE = File.expand_path("../choose", __dir__)

  def test_every_way_answers_the_same_and_has_a_row
    out, err, status = Open3.capture3(CHOOSE, "--rounds", "1", "--seconds", "1", "--connections", "4", "hello", "wait", "redis")
    assert status.success?, "#{out}#{err}"
    rows = out.lines.grep(/\A\| (Hello|wait|JSON)/).map { |line| line.split("|").map(&:strip)[1..] }
    assert_equal 12, rows.size
    assert_equal 4, rows.map { |row| row[1] }.uniq.size
    rows.each { |row| assert_operator row[2].to_i, :>, 0, row.inspect }
    waits = rows.select { |row| row[0].start_with?("wait") }.to_h { |row| [row[1], row[2].to_i] }
    assert_operator waits.fetch("1 process, 4 fibers"), :<=, 4 / 0.02
  end

  def test_unknown_work_is_refused
    _, err, status = Open3.capture3(CHOOSE, "sing")
    refute status.success?
    assert_match(/no work is called sing; there are hello, wait, cpu, redis/, err)
  end
end
