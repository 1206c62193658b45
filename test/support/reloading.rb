# frozen_string_literal: true

# Servers whose app is replaced while they run.

module Reloading
  # An app that responds with its version, which it reads from a file, as a deploy would replace it.
  APP = <<~'RUBY'
    version = File.read(File.join(__dir__, "version.txt"))
    text = { "content-type" => "text/plain" }
    run lambda { |env|
      case env["PATH_INFO"]
      when "/pid" then [200, text, [Process.pid.to_s]]
      when "/slow" then File.write("entered.log", "yes"); sleep 1; [200, text, ["#{version} to the end"]]
      when "/20ms" then sleep 0.02; [200, text, [version]]
      else [200, text, [version]]
      end
    }
  RUBY

  # Workers are not watched after a reload unless a test sets that.
  def launch_app(app: APP, version: "one", files: {}, settings: {}, **options)
    settings = settings.merge(reload: { watch: "0s" }.merge(settings.fetch(:reload, {})))
    start(app: app, files: { "version.txt" => version }.merge(files), settings: settings, **options)
  end

  def deploy(own, version)
    File.write(own.path("version.txt"), version)
  end

  # `firebrick reload`: [stdout, stderr, exit code].
  def reload(own, *args)
    own.command_line("reload", own.dir, *args)
  end

  def assert_reloads(own, *args)
    out, err, code = reload(own, *args)
    assert_equal 0, code, -> { "#{out}#{err}#{own.report}" }
    out
  end

  def templates(own)
    Processes.templates(own.pid)
  end

  # Asserts that these workers serve and no other, also none that is about to end.
  def assert_workers(own, pids)
    wait_until("the workers of before, and no other", within: 10) { workers_of(own).sort == pids }
  end

  def workers_of(own)
    pids = templates(own).map(&:pid)
    own.processes.select { |one| pids.include?(one.parent) }.map(&:pid)
  end
end
