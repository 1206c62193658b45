# frozen_string_literal: true

require "open3"
require "support/case"

# Runs `firebrick tune` on an app, and removes all its files.
class TuneCase < Case
  APPS = File.expand_path("../apps/tune", __dir__)
  # Just enough to distinguish the apps: sixteen users, a table of four cells.
  LOAD = %w[-c 16 -n 160 --repeats 2].freeze
  GRID = %w[-w 1,2 -t 1,8].freeze
  CALM_TRIES = 3

  def setup
    firebrick_only
    @folder = File.realpath(Dir.mktmpdir("firebrick-tune"))
  end

  def teardown
    return unless @folder

    left = Processes.in_directory(@folder).map { |one| Processes.command(one.pid) }
    FileUtils.remove_entry(@folder)
    assert_empty left, "processes left behind"
  end

  # A copy of a test app, so that each test has its own directory.
  def app(name)
    File.join(@folder, name).tap { |copy| FileUtils.cp_r(File.join(APPS, name), copy) unless File.exist?(copy) }
  end

  def own_app(source)
    File.join(@folder, "own").tap do |dir|
      FileUtils.mkdir_p(dir)
      File.write(File.join(dir, "config.ru"), source)
    end
  end

  def environment
    cleared = %w[PORT WEB_CONCURRENCY RAILS_MAX_THREADS RAILS_MIN_THREADS RACK_ENV RAILS_ENV APP_ENV].to_h { |key| [key, nil] }
    temp = File.join(@folder, "tmp").tap { |dir| FileUtils.mkdir_p(dir) }
    cleared.merge("TMPDIR" => temp, "XDG_RUNTIME_DIR" => temp, **Server.ruby_files)
  end

  def tune(*args)
    out, err, status = Open3.capture3(environment, Server.binary, "tune", *args, chdir: @folder)
    refute_match(/panicked/, err)
    assert_empty Dir.children(File.join(@folder, "tmp")), "files left behind"
    [out, err, status.exitstatus]
  end

  # The JSON of a run that must succeed.
  def tuned(*args)
    # With other suites running, the machine is never idle.
    out, err, code = tune(*args, "--noisy", "--format", "json")
    assert_equal 0, code, "#{err}\n#{out}"
    JSON.parse(out)
  end

  # Does the same, and repeats it once if other programs disturbed the measurement; the second result is used in any case.
  def tuned_calmly(*args)
    figures = nil
    CALM_TRIES.times do
      figures = tuned(*args)
      break if figures["cells"].none? { |one| one["limited_by"] == "Machine" }
    end
    figures
  end

  def best(figures)
    shape = figures.dig("recommendation", "best", "shape")
    refute_nil shape, figures["recommendation"].inspect
    [shape["processes"], shape["threads"]]
  end

  def cell(figures, processes, threads)
    found = figures["cells"].each_with_index.find do |cell, at|
      cell["processes"] == processes && cell["threads"] == threads && !figures["looks"].include?(at)
    end
    found&.first
  end

  def words(figures)
    figures.dig("nature", "words").join("\n")
  end
end
