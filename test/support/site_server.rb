# frozen_string_literal: true

# The real program serving a directory of files: a static site, with or without static.json and a Rack app behind it.

require "support/server"

class SiteServer < Server
  # files::    path => content, below the site's directory
  # rules::    static.json: a Hash, or its text; nil for a directory without one
  # prepare::  called with the directory before the start, to create special files
  # proxies::  proxies of the rules, for peers
  # app::      source of config.ru, for a site in front of a Rack app
  def initialize(files: {}, rules: nil, prepare: nil, app: nil, workers: nil, threads: nil, environment: nil, env: {}, **options)
    files = files.merge("static.json" => rules.is_a?(String) ? rules : JSON.generate(rules)) if rules
    workers ||= 1 if app
    threads ||= "1:5" if app
    env = { "BASIC_AUTH_USERNAME" => nil, "BASIC_AUTH_PASSWORD" => nil, "STATIC_DEBUG" => nil, "WORKER_CONNECTIONS" => nil }.merge(env)
    options.delete(:proxies)
    super(app: app, files: files, workers: workers, threads: threads, environment: environment, env: env, **options)
    prepare&.call(@dir)
  end

  # Replaces the static.json of a running server.
  def rules=(rules)
    write("static.json", rules.is_a?(String) ? rules : JSON.generate(rules))
  end

  # Replaces a file atomically, as an editor does.
  def write(name, content)
    File.binwrite(path("#{name}.new.log"), content)
    File.rename(path("#{name}.new.log"), path(name))
  end

  private

  # Tests change the sites that they own, so only files left elsewhere count.
  def files_left
    super.grep_v(%r{\Afile left behind: /app/})
  end
end
