# frozen_string_literal: true

# The pages that lead from an empty folder to an app on a platform: their commands write the files, and the platform's command
# serves them with the platform's variables.

require "open3"
require "yaml"
require "support/case"

class PlatformsTest < Case
  parallel!

  # A folder in which the page's commands have written their files.
  def written(page)
    dir = Dir.mktmpdir("firebrick-platform")
    (@folders ||= []) << dir
    blocks(page).grep(/\A(?:mkdir -p [\w.]+\n)?cat > /).each do |block|
      out, status = Open3.capture2e("bash", "-euo", "pipefail", "-c", block, chdir: dir)
      assert_predicate status, :success?, "#{page}:\n#{block}\n#{out}"
    end
    dir
  end

  # Returns the indented blocks of a page. An empty line does not end a block.
  def blocks(page)
    File.read(File.join(Server::ROOT, "docs", page)).scan(/(?:^ {4}.*\n|^\n(?= {4}))+/).map { |block| block.gsub(/^ {4}/, "").strip }
        .flat_map { |block| block.split(/\n\n(?=cat > |mkdir |#)/) }
  end

  def after_teardown
    super
    @folders&.each { |dir| FileUtils.remove_entry(dir) }
  end

  def setup
    firebrick_only
  end

  # Everything except the address comes from the page's files and the platform's variables.
  def serve(dir, args: [], env: {}, binds: nil)
    start(directory: dir, workers: nil, threads: nil, environment: nil, fibers: nil, binds: binds, args: args, env: env)
  end

  it "Heroku: the line of the Procfile serves on PORT" do
    dir = written("heroku.md")
    assert_equal %w[Gemfile Procfile config.ru firebrick.toml], Dir.children(dir).sort
    # As with vendor/cache: uses the gem under test.
    File.write(File.join(dir, "Gemfile"), File.read(File.join(dir, "Gemfile")).sub('gem "firebrick"', "\\0, path: #{Server::ROOT.inspect}"))
    command = File.read(File.join(dir, "Procfile"))[/\Aweb: bundle exec firebrick (.+)$/, 1]
    own = serve(dir, args: command.split, env: { "PORT" => "0", "WEB_CONCURRENCY" => "2" }, binds: [])
    response = get("/", to: own, headers: { "X-Forwarded-Proto" => "https", "X-Request-Start" => (Time.now.to_f * 1000).to_i.to_s })
    assert_status 200, response
    assert_equal "Hello from example.test\n", response.body
    assert_match(/^\* 2 workers x /, own.stdout)
  end

  it "Kubernetes: the image's app is served" do
    dir = written("kubernetes.md")
    assert_equal %w[Dockerfile config.ru values.yaml], Dir.children(dir).sort
    recipe = File.read(File.join(Server::ROOT, "deploy/image/Containerfile"))
    own = serve(dir, env: { "RACK_ENV" => recipe[/^ENV RACK_ENV=(\w+)/, 1] })
    assert_equal "Hello from example.test\n", get("/", to: own).body
    # The installed chart itself is rendered in test/chart.
    assert_equal "1", YAML.safe_load_file(File.join(dir, "values.yaml")).dig("image", "tag")
  end

  it "Kamal: the image's command is healthy at the proxy's path, and ends in its time" do
    dir = written("kamal.md")
    assert_equal %w[.kamal Dockerfile config config.ru firebrick.toml], Dir.children(dir).sort
    deploy = YAML.safe_load_file(File.join(dir, "config/deploy.yml"))
    image = File.read(File.join(dir, "Dockerfile"))
    secrets = File.readlines(File.join(dir, ".kamal/secrets")).map { |line| line[/\A\w+(?==)/] }
    assert_equal deploy.dig("registry", "password"), secrets
    assert_equal %(["firebrick"]), image[/^CMD (.+)$/, 1]
    assert_equal deploy.dig("proxy", "app_port").to_s, image[/^EXPOSE (\d+)$/, 1]
    own = serve(dir, env: { "RACK_ENV" => image[/^ENV RACK_ENV=(\w+)$/, 1], **deploy.dig("env", "clear").transform_values(&:to_s) })
    assert_status 200, get(deploy.dig("proxy", "healthcheck", "path"), to: own)
    assert_status 200, get("/", to: own)
  end
end
