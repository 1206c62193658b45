# frozen_string_literal: true

require "application_system_test_case"

class EntriesTest < ApplicationSystemTestCase
  test "the app sees what the test has not committed" do
    Entry.create!(text: "of the test")
    visit "/entries"
    assert_selector "li", text: "of the test"
    assert_selector "#process", text: Process.pid.to_s
  end

  test "the test sees what the app has not committed" do
    assert_equal 0, Entry.count
    visit "/entries"
    fill_in "text", with: "of the app"
    click_on "Add"
    assert_selector "li", text: "of the app"
    assert_equal ["of the app"], Entry.pluck(:text)
  end

  test "an exception of the app reaches the test" do
    error = assert_raises(ArgumentError) do
      visit "/requests/fails"
      visit "/entries"
    end
    assert_equal "an error of the app", error.message
  end
end
