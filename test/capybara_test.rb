# frozen_string_literal: true

# Capybara's server: the app and its test run in one process.

require "support/program_case"

class CapybaraTest < ProgramCase
  parallel!

  def before_setup
    super
    skip "Capybara is not installed" unless system(ENV.fetch("RUBY", "ruby"), "-e", "require 'capybara'", out: File::NULL, err: File::NULL)
  end

  # The environment can make Puma appear to be missing.
  SETUP = <<~'RUBY'
    $stdout.sync = true
    module NoPuma
      def resolve_feature_path(path) = path.start_with?("puma") ? nil : super
    end
    module NoPumaGem
      def find_by_path(path) = path.start_with?("puma") ? nil : super
    end
    if ENV["NO_PUMA"]
      $LOAD_PATH.singleton_class.prepend(NoPuma)
      Gem::Specification.singleton_class.prepend(NoPumaGem)
    end
    require "capybara"
    require "net/http"
    App = ->(env) { [200, { "content-type" => "text/plain" }, ["pid #{Process.pid}, #{$shared}, #{Thread.current == Thread.main}"]] }
  RUBY

  SESSION = <<~'RUBY'
    $shared = "transaction"
    server = Capybara::Server.new(App).boot
    puts Net::HTTP.get(URI("http://#{server.host}:#{server.port}/"))
    other = Capybara::Server.new(->(_) { [200, {}, ["other"]] }).boot
    puts Net::HTTP.get(URI("http://#{other.host}:#{other.port}/"))
    failing = Capybara::Server.new(->(_) { raise "seen by the test" }, reportable_errors: [StandardError]).boot
    puts Net::HTTP.get_response(URI("http://#{failing.host}:#{failing.port}/")).code
    puts failing.error.message
  RUBY

  def assert_session(ruby)
    assert_equal 0, ruby.wait_exit(within: 60), ruby.output
    lines = ruby.output.lines(chomp: true).reject { |line| line.match?(/^(\[\S+\] firebrick|firebrick:|    |Capybara)/) }
    assert_equal ["pid #{ruby.pid}, transaction, false", "other", "500", "seen by the test"], lines
  end

  it "serves the apps of a test as :firebrick, in the test's process" do
    assert_session program("#{SETUP}require 'firebrick/capybara'\nCapybara.server = :firebrick\n#{SESSION}")
  end

  it "is registered when Capybara was loaded before" do
    assert_session program("#{SETUP}require 'firebrick'\nCapybara.server = :firebrick\n#{SESSION}")
  end

  it "takes the place of Puma, as Capybara's default and with Rails' options, where Puma is not" do
    assert_session program("#{SETUP}require 'firebrick'\n#{SESSION}", env: { "NO_PUMA" => "1" })
    assert_session program("#{SETUP}require 'firebrick'\nCapybara.server = :puma, { Silent: true, Threads: '0:2' }\n#{SESSION}", env: { "NO_PUMA" => "1" })
  end

  it "leaves :puma alone where Puma is" do
    ruby = program("#{SETUP}before = Capybara.servers[:puma]; require 'firebrick'; puts before == Capybara.servers[:puma]; puts Gem.loaded_specs.key?('puma') || $LOADED_FEATURES.any? { |f| f.end_with?('/puma.rb') }")
    skip "Puma is not installed" unless system(ENV.fetch("RUBY", "ruby"), "-e", "require 'puma'", out: File::NULL, err: File::NULL)
    assert_equal 0, ruby.wait_exit
    assert_equal "true\nfalse\n", ruby.output
  end
end
