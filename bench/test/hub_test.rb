# frozen_string_literal: true

# Tests of bench/hub. Run: ruby bench/test/hub_test.rb
require "minitest/autorun"
require "open3"
require_relative "built"

class HubBenchTest < Minitest::Test
  include Built

  CLIENTS = ENV["CABLE_CLIENTS"] || Dir[File.join(ROOT, "target/{release,debug}/examples/cable_clients")].first

  def run_bench(*words)
    Open3.capture2e({ "FIREBRICK" => BINARY, "CABLE_CLIENTS" => CLIENTS }, File.join(ROOT, "bench/hub"), *words)
  end

  def need
    need_firebrick
    skip "no clients: cargo build -p load --example cable_clients" unless CLIENTS
    skip "Action Cable is not installed (apt-get install ruby-actioncable)" unless system("ruby", "-e", "require 'action_cable'", err: File::NULL)
  end

  def test_all_clients_get_all_messages_also_over_deploys
    need
    text, status = run_bench("--count", "60", "--idle", "1", "--broadcasts", "4", "--deploys", "1")
    assert status.success?, text
    row = text.lines.last.split("|").map(&:strip)
    assert_equal "Firebrick", row[1], text
    assert_match(/\A[\d.]+ µs\z/, row[6], text)
    assert_match(/\A[\d.]+, [\d.]+ ms\z/, row.last(2).first, text)
  end

  def test_wrong_words_are_named
    [["--count", "0"], ["--server", "nobody"], %w[more], ["--deploys", "1", "--server", "puma"]].each do |words|
      text, status = run_bench(*words)
      assert_equal 2, status.exitstatus, text
      refute_empty text
    end
  end

  def test_a_program_that_is_missing_is_named
    need
    text, status = Open3.capture2e({ "FIREBRICK" => BINARY, "CABLE_CLIENTS" => "/nonexistent" }, File.join(ROOT, "bench/hub"), "--count", "1")
    assert_equal 1, status.exitstatus
    assert_includes text, "cargo build --release -p load --example cable_clients"
  end
end
