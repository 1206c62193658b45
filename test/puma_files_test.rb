# frozen_string_literal: true

# Files as real projects have them (test/apps/puma_files): each passes `check`, which puts each key into the class named in the comment behind
# it, and each serves.

require "support/case"

class PumaFilesTest < Case
  parallel! slow: true

  APP = <<~'RUBY'
    class Report
      def self.words = "of the app"
    end unless defined?(Report)
    class Worker
      def self.begin(report) = Worker.begun = report
      class << self; attr_accessor :begun; end
    end
    run ->(_env) { [200, { "content-type" => "text/plain" }, ["served"]] }
  RUBY

  FILES = {
    "tmp/pids/.keep" => "", "tmp/sockets/.keep" => "", "log/.keep" => "",
    "lib/puma_support.rb" => "module PumaSupport\n  def self.call(*) = nil\n  def self.watch(options) = options.fetch(:workers)\nend\n",
    "lib/puma/plugin/local_metrics.rb" => "require \"puma/plugin\"\nPuma::Plugin.create { def start(launcher) = in_background { launcher.options } }\n",
    "config/puma/shared.rb" => "threads 2, 2\nworkers 2\n",
    "config/server.yml" => "workers: 2\nthreads: [2, 4]\nlisten: { host: 127.0.0.1, port: 9292 }\nhooks: [before_fork, on_worker_boot]\n"
  }.freeze

  def setup
    firebrick_only
  end

  # The expected output of `check`, by line.
  def expectations(text)
    text.lines.each_with_index.filter_map { |line, index| [index + 1, line[/#=> (.*)$/, 1]] if line.include?("#=> ") }
  end

  Dir[File.join(__dir__, "apps/puma_files/*.rb")].sort.each do |path|
    it "checks and serves #{File.basename(path, '.rb')}" do
      text = File.read(path)
      own = start(app: APP, files: FILES.merge("config/puma.rb" => text), workers: nil, threads: nil, environment: nil, leaves: %w[tmp log],
                  env: %w[PORT WEB_CONCURRENCY RAILS_ENV RACK_ENV APP_ENV].to_h { |name| [name, nil] })
      assert_status 200, get("/", to: own)
      out, err, code = own.command_line("check")
      assert_equal 0, code, out + err
      table = out[/evaluated once:\n(.*?)\n\n/m, 1].lines
      expectations(text).each do |line, expected|
        rows = table.grep(/^\s+#{line}\s/)
        refute_empty rows, "line #{line} is not in\n#{out}"
        alternatives = expected.split("|").map { |one| one.sub('"?', "") }
        assert alternatives.any? { |one| rows.any? { |row| row.delete('"').include?(one) } }, "#{expected} is not in #{rows.join}"
      end
    end
  end
end
