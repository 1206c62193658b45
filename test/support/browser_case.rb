# frozen_string_literal: true

# The base of the tests that need a browser: one browser for all tests of a class, which use it in turn; each page in it has its own
# profile and is closed after its test.

require "support/browser"
require "support/case"

class BrowserCase < Case
  in_turn!

  class << self
    def browser
      @browser ||= Browser.new
    end

    def over(reporter)
      super
    ensure
      @browser&.close
      @browser = nil
    end
  end

  def setup
    skip "Chromium is not installed" unless Browser.installed?
    firebrick_only
    @pages = []
  end

  def teardown
    @pages&.each(&:close)
  end

  def open_page(**options)
    self.class.browser.page(**options).tap { |page| @pages << page }
  end
end
