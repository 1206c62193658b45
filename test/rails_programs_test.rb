# frozen_string_literal: true

# Programs of Rails with an embedded Firebrick: `rails test:system` with a browser, and web-console.

require "cgi"
require "support/browser"
require "support/program_case"
require "support/rails_app"

class RailsProgramsTest < ProgramCase
  parallel!

  def before_setup
    super
    rails_only
    firebrick_only
  end

  def gem?(name)
    system(ENV.fetch("RUBY", "ruby"), "-e", "gem #{name.inspect}", out: File::NULL, err: File::NULL)
  end

  def rails(*arguments, gems: [], env: {}, files: {}, command: nil)
    command ||= [ENV.fetch("RUBY", "ruby"), "bin/rails", *arguments]
    program(command: command, files: RailsApp.files(*gems).merge(files), env: RailsApp::ENVIRONMENT.merge("RAILS_LOG_TO_STDOUT" => nil).merge(env))
  end

  # --- system tests

  # Rails 7.2 and later call Selenium's DriverFinder; Debian 13 has it with a Selenium that is older.
  def rails_finds_drivers? = Gem::Version.new(RailsApp.version) >= Gem::Version.new("7.2")

  def driver_finder?
    system(ENV.fetch("RUBY", "ruby"), "-rselenium-webdriver", "-e", "exit(defined?(Selenium::WebDriver::DriverFinder) ? true : false)", out: File::NULL, err: File::NULL)
  end

  def assert_system_tests(server)
    skip "Chromium's driver is not installed (apt-get install chromium-driver)" unless system("which chromedriver", out: File::NULL)
    skip "selenium-webdriver is not installed (apt-get install ruby-selenium-webdriver)" unless gem?("selenium-webdriver")
    skip "this selenium-webdriver has no Selenium::WebDriver::DriverFinder, which Rails calls" if rails_finds_drivers? && !driver_finder?
    env = { "CAPYBARA_SERVER" => server, "CHROMIUM" => Browser::PROGRAM, "RAILS_ENV" => "test", "SE_MANAGER_PATH" => "/nonexistent", "MT_NO_PLUGINS" => nil,
            "SE_CHROMEDRIVER" => `which chromedriver`.chomp }
    tests = rails("test:system", gems: %w[capybara selenium-webdriver], env: env)
    assert_equal 0, tests.wait_exit(within: 240), tests.output
    assert_match(/3 runs, \d+ assertions, 0 failures, 0 errors, 0 skips/, tests.output)
    tests.output
  end

  it "serves system tests as :firebrick, in the test's process and its transaction" do
    assert_match(/Starting Firebrick|Run options/, assert_system_tests("firebrick"))
  end

  it "serves system tests in the place of Puma, where Puma is not" do
    assert_system_tests("puma")
  end

  # --- web-console

  # Evaluates code in the console of the page that shows an exception, as its script does.
  def assert_console(port)
    page = fetch_soon(port, "/requests/fails", within: 120)
    id = page[/data-session-id=["']([^"']+)["']/, 1] || page[/sessionId\W+["'](\h+)["']/, 1]
    assert id, "no console in:\n#{page[0, 2000]}"
    mount = page[/data-mount-point=["']([^"']+)["']/, 1] || "/__web_console"
    { "40 + 2" => "=> 42", "params[:controller]" => %(=> "requests"), "1 / 0" => "divided by 0" }.each do |text, expected|
      put = Net::HTTP::Put.new("#{mount}/repl_sessions/#{id}", "X-Requested-With" => "XMLHttpRequest", "Accept" => "application/vnd.web-console.v2")
      put.set_form_data("input" => text)
      response = Net::HTTP.start("127.0.0.1", port) { |http| http.request(put) }
      assert_equal "200", response.code, response.body
      assert_includes JSON.parse(response.body)["output"], expected
    end
  end

  it "has web-console's console where rails server is one process" do
    skip "web-console is not installed (apt-get install ruby-web-console)" unless gem?("web-console")
    port = free_port
    rails("server", "-u", "firebrick", "-p", port.to_s, "-b", "127.0.0.1", gems: ["web-console"], env: { "WEB_CONCURRENCY" => "2" })
    assert_console(port)
  end

  it "has web-console's console with the plain program" do
    skip "web-console is not installed (apt-get install ruby-web-console)" unless gem?("web-console")
    port = free_port
    rails(gems: ["web-console"], env: Server.ruby_files, command: [Server.binary, "-p", port.to_s, "-o", "127.0.0.1"])
    assert_console(port)
  end
end
