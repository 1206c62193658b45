# frozen_string_literal: true

# Faults that are planted in a Rails app and in Redmine: each is named first, with its line, by the command that is for it; an app without faults
# gets no advice.

require "json"
require "support/case"
require "support/planted_faults"
require "support/rails_app"
require "support/redmine/server"
require "support/visits"

class PlantedFaultsTest < Case
  parallel! slow: 60

  include Visits

  def before_setup
    super
    firebrick_only
  end

  def after_teardown
    faults = @redmine&.finish
    @instance&.remove
    super
    assert_empty faults.to_a
  end

  # Sends so many requests of these actions, from as many clients as a worker has threads.
  def visit(own, **actions)
    visit_all(own, actions.flat_map { |action, count| ["/planted/#{action}"] * count }, clients: 3)
  end

  # Sends requests of these actions until the block ends, from a client for each.
  def asking(own, *actions, &block)
    under_load(own, *actions.map { |action| "/planted/#{action}" }, pause: 0.005, &block)
  end

  def command(own, *words)
    out, err, code = own.command_line(*words)
    assert_equal 0, code, "#{words.join(' ')}\n#{out}#{err}"
    out
  end

  def advice(own) = JSON.parse(command(own, "routes", own.dir, "--json")).fetch("advice")

  # The profile's table of lines, without the shares.
  def hottest_lines(own, *words, time: "3s") = command(own, "profile", time, own.dir, "--format", "text", *words).lines.drop_while { |row| !row.match?(/self +total +state +line$/) }.drop(1)

  # The app's files stand in +folder+ of its directory.
  def assert_each_named(own, folder = "")
    at = ->(mark) { "#{folder}app/controllers/planted_controller.rb:#{PlantedFaults.line(mark)}" }
    visit(own, sound: 150)
    assert_empty advice(own)

    visit(own, rows: 60)
    assert_equal "repeated_query", advice(own).dig(0, "rule"), -> { own.control("/routes").to_json }
    assert_match(/\Aplanted#rows makes 2\d(?:\.\d)? queries a request, 20 of them the same one, .* at #{at['query']}: /, advice(own).dig(0, "text"))

    visit(own, export: 60)
    assert_match(/\Aplanted#export keeps Ruby's lock .* at #{at['hash']}: /, advice(own).dig(0, "text"))

    locks = asking(own, *["stock"] * 4, "sound") { hottest_lines(own) }
    assert_match(/ #{at['lock']} PlantedController#stock/, locks.first)

    slow = asking(own, *%w[search sound] * 2) { hottest_lines(own, "--route", "planted#search", "--slowest", "3%", time: "8s") }
    # The name of a method that sleeps may come without its class.
    assert_match(/ #{at['slow request']} (?:PlantedController#)?slow in /, slow.first)

    leak = asking(own, "cart", "sound", "search") { JSON.parse(command(own, "leaks", "8s", "--trace", "--json")).dig("growth", 0) }
    assert_equal ["String", "#{own.dir}/#{at['leak']}", "planted#cart"], [*leak.values_at("class", "at"), leak.dig("routes", 0, "route")]

    assert_equal 502, get("/planted/poison", to: own).status
    wait_until("a record") { own.control("/deaths").any? }
    assert_match(%r{\AGET /planted/poison was in progress in 1 of 1 unexpected deaths}, command(own, "deaths", own.dir))
    out, err, code = own.command_line("deaths", own.dir, "--replay", "1")
    assert_equal ["", 1], [err, code], out
    assert_match(/environment production\. .*The last line of the app that ran: #{at['poison']}\n/m, out)
  end

  it "names each first in a Rails app" do
    rails_only
    rows = "Entry.order(:id).limit(20).map { |entry| Entry.find(entry.id).text }.join"
    initializer = <<~RUBY
      Rails.application.routes.append do
        #{PlantedFaults::ROUTES}
      end
      Rails.application.config.after_initialize { 20.times { |n| Entry.create!(text: "entry \#{n}") } }
    RUBY
    files = { "app/controllers/planted_controller.rb" => PlantedFaults.controller(rows), "config/initializers/z_planted.rb" => initializer }
    assert_each_named start(**RailsApp.options(workers: 2, threads: "3:3", args: ["-e", "production"], files: files))
  end

  it "names each first in Redmine" do
    skip "Redmine 5 is not installed (script/setup test)" unless Redmine.installed?
    @instance = Redmine::Instance.new
    @instance.build
    folder = "plugins/planted/"
    { "init.rb" => "Redmine::Plugin.register(:planted) { name \"Planted\" }\n", "config/routes.rb" => PlantedFaults::ROUTES,
      "app/controllers/planted_controller.rb" => PlantedFaults.controller("Issue.order(:id).limit(20).map { |issue| Issue.find(issue.id).subject }.join") }.each do |name, text|
      file = File.join(@instance.dir, folder, name)
      FileUtils.mkdir_p(File.dirname(file))
      File.write(file, text)
    end
    @redmine = Redmine::Firebrick.new(@instance).start
    assert_each_named(@redmine, folder)
  end
end
