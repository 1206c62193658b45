# frozen_string_literal: true

# `rails generate firebrick:install` in apps that Rails has generated.

require "open3"
require "support/program_case"
require "support/rails_app"

class GeneratorTest < ProgramCase
  parallel! slow: true

  # The ends of Rails' own Dockerfiles.
  DOCKERFILE_7_1 = <<~'TEXT'
    FROM registry.docker.com/library/ruby:3.3.0-slim as base
    ENV RAILS_ENV="production" \
        BUNDLE_DEPLOYMENT="1"
    USER rails:rails

    # Entrypoint prepares the database.
    ENTRYPOINT ["/rails/bin/docker-entrypoint"]

    # Start the server by default, this can be overwritten at runtime
    EXPOSE 3000
    CMD ["./bin/rails", "server"]
  TEXT
  DOCKERFILE_8 = DOCKERFILE_7_1.sub(/^# Start the server.*\z/m, <<~TEXT)
    # Start server via Thruster by default, this can be overwritten at runtime
    EXPOSE 80
    CMD ["./bin/thrust", "./bin/rails", "server"]
  TEXT
  ENTRYPOINT_7_1 = <<~'TEXT'
    #!/bin/bash -e

    # If running the rails server then create or migrate existing database
    if [ "${1}" == "./bin/rails" ] && [ "${2}" == "server" ]; then
      ./bin/rails db:prepare
    fi

    exec "${@}"
  TEXT
  ENTRYPOINT_8 = ENTRYPOINT_7_1.sub('[ "${1}" == "./bin/rails" ] && [ "${2}" == "server" ]',
                                    '[ "${@: -2:1}" == "./bin/rails" ] && [ "${@: -1:1}" == "server" ]')
  PUMA_8 = <<~'RUBY'
    threads_count = ENV.fetch("RAILS_MAX_THREADS", 3)
    threads threads_count, threads_count

    # Specifies the `port` that Puma will listen on to receive requests; default is 3000.
    port ENV.fetch("PORT", 3000)

    # Allow puma to be restarted by `bin/rails restart` command.
    plugin :tmp_restart

    # Run the Solid Queue supervisor inside of Puma for single-server deployments
    plugin :solid_queue if ENV["SOLID_QUEUE_IN_PUMA"]

    pidfile ENV["PIDFILE"] if ENV["PIDFILE"]
  RUBY
  OWN = %w[firebrick.toml Gemfile Procfile Dockerfile bin/docker-entrypoint config/puma.rb config/cable.yml config/deploy.yml].freeze
  LOCK = Mutex.new
  CABLE = "development:\n  adapter: async\n\ntest:\n  adapter: test\n\nproduction:\n  adapter: solid_cable\n  connects_to:\n    database:\n      writing: cable\n"
  KAMAL = "service: blog\nproxy:\n  ssl: true\n  host: blog.example.com\nregistry:\n  password:\n    - KAMAL_REGISTRY_PASSWORD\n"

  def setup
    firebrick_only
    rails_only
    @folders = []
  end

  def after_teardown
    super
    @folders.to_a.each { |dir| FileUtils.remove_entry(dir) }
  end

  class << self
    # A folder of gems in which Firebrick is installed.
    def gems
      @gems ||= Dir.mktmpdir("firebrick-gems").tap do |dir|
        spec = Gem::Specification.load(File.join(Server::ROOT, "firebrick.gemspec")).dup
        spec.extensions = []
        FileUtils.mkdir_p([File.join(dir, "specifications"), File.join(dir, "gems")])
        File.write(File.join(dir, "specifications/#{spec.full_name}.gemspec"), spec.to_ruby)
        File.symlink(Server::ROOT, File.join(dir, "gems", spec.full_name))
      end
    end

    def over(reporter)
      super
      FileUtils.remove_entry(@gems) if @gems
    end
  end

  def gemfile = %(#{RailsApp.files.fetch('Gemfile')}gem "puma", ">= 5.0"\n)
  def with_firebrick = %(#{gemfile}gem "firebrick", path: "#{Server::ROOT}"\n)

  # The folder of a generated app with more files; nil removes one.
  def app(**files)
    dir = File.realpath(Dir.mktmpdir("firebrick-generator"))
    @folders << dir
    # Since Rails 7.1 a new app has files of images.
    RailsApp.files.except("Dockerfile", "bin/docker-entrypoint").merge("Gemfile" => gemfile, "tmp/pids/.keep" => "", "log/.keep" => "").merge(files.transform_keys(&:to_s)).compact.each do |name, text|
      FileUtils.mkdir_p(File.dirname(File.join(dir, name)))
      File.binwrite(File.join(dir, name), text)
    end
    dir
  end

  def environment
    { **RailsApp::ENVIRONMENT, **%w[PORT WEB_CONCURRENCY RAILS_MAX_THREADS RAILS_ENV RACK_ENV FIREBRICK_SLO].to_h { |name| [name, nil] },
      "RUBYLIB" => RubyProgram::LIB, "GEM_PATH" => [LOCK.synchronize { self.class.gems }, *Gem.path].join(":"), **RubyProgram.environment }
  end

  # Runs `rails generate firebrick:install`, or `rails destroy`.
  def rails(dir, how, *flags, input: "", env: {})
    out, status = Open3.capture2e(environment.merge(env), ENV.fetch("RUBY", "ruby"), "bin/rails", how, "firebrick:install", *flags, chdir: dir, stdin_data: input)
    [out, status.exitstatus]
  end

  def install(dir, *flags, **options)
    out, code = rails(dir, "generate", *flags, **options)
    assert_equal 0, code, out
    out
  end

  # The files that the generator may change, and the names of all others.
  def contents(dir)
    names = all_files(dir)
    own, others = names.partition { |name| OWN.include?(name) }
    [own.to_h { |name| [name, File.read(File.join(dir, name))] }, others]
  end

  def all_files(dir)
    names = Dir.glob("**/*", File::FNM_DOTMATCH, base: dir).reject { |name| name.start_with?(*RailsApp::LEAVES) }
    names.select { |name| File.file?(File.join(dir, name)) }.sort
  end

  def read(dir, name) = File.read(File.join(dir, name))

  # Lines of the file that are no comments.
  def lines(dir, name) = read(dir, name).lines(chomp: true).grep_v(/\A\s*(#|\z)/)

  def assert_valid(dir)
    out, status = Open3.capture2e(environment, Server.binary, "check", chdir: dir)
    assert_predicate status, :success?, out
    out
  end

  it "is in the gem" do
    files = Gem::Specification.load(File.join(Server::ROOT, "firebrick.gemspec")).files
    assert_empty Dir["worker/lib/generators/**/*.rb", base: Server::ROOT] - files
    assert_includes files, "worker/lib/generators/firebrick/install/install_generator.rb"
  end

  it "writes what a fresh app needs, and nothing at a second time" do
    dir = app
    out = install(dir)
    assert_match(/create +firebrick.toml/, out)
    assert_match(/create +Procfile/, out)
    assert_match(/puma is still there.*--replace/m, out)
    assert_match(/^ +bundle install/, out)
    assert_includes lines(dir, "firebrick.toml"), %(port = 3000  # config/puma.rb:#{read(dir, 'config/puma.rb').lines.index { |line| line.start_with?('port') } + 1})
    refute_match(/^environment/, read(dir, "firebrick.toml"))
    assert_equal "web: bundle exec firebrick -e ${RAILS_ENV:-production}\n", read(dir, "Procfile")
    assert_equal [*gemfile.lines(chomp: true), 'gem "firebrick"'], lines(dir, "Gemfile")
    refute_path_exists File.join(dir, "Dockerfile")

    before = contents(dir)
    again = install(dir)
    refute_match(/^ +(create|conflict|force) /, again)
    assert_equal before, contents(dir)
  end

  it "does not take the values of this moment's variables" do
    dir = app
    install(dir, env: { "PORT" => "4711", "RAILS_MAX_THREADS" => "77", "WEB_CONCURRENCY" => "9" })
    refute_match(/4711|77|workers/, lines(dir, "firebrick.toml").join("\n"))
  end

  it "changes the commands of Procfile and Dockerfile of Rails 8, and keeps its port" do
    dir = app(Procfile: "web: bundle exec puma -C config/puma.rb -t 2:3\njobs: bin/jobs\n", Dockerfile: DOCKERFILE_8, "bin/docker-entrypoint": ENTRYPOINT_8,
              "config/puma.rb": PUMA_8, "config/deploy.yml": KAMAL)
    File.chmod(0o755, File.join(dir, "bin/docker-entrypoint"))
    original = contents(dir)
    out = install(dir, "--force", "--replace")
    assert_equal ["web: bundle exec firebrick -C config/puma.rb -t 2:3", "jobs: bin/jobs"], lines(dir, "Procfile")
    assert_equal ["EXPOSE 80", 'ENV PORT="80"', 'CMD ["bundle", "exec", "firebrick", "-C", "config/puma.rb"]'], lines(dir, "Dockerfile").last(3)
    assert_equal [*gemfile.lines(chomp: true).grep_v(/"puma"/), 'gem "firebrick"'], lines(dir, "Gemfile")
    assert_match(%r{config/puma.rb: blocks, plugins or conditions}, out)
    assert_match(/docs.kamal\.md/, out)
    refute_match(/app_port/, out, "the container listens where kamal-proxy sends to")
    assert_equal KAMAL, read(dir, "config/deploy.yml")
    assert_equal({ prepared: true, mode: 0o755 }, { prepared: prepares?(dir, "bundle", "exec", "firebrick", "-C", "config/puma.rb"), mode: File.stat(File.join(dir, "bin/docker-entrypoint")).mode & 0o777 })
    refute prepares?(dir, "./bin/jobs")
    assert prepares?(dir, "./bin/thrust", "./bin/rails", "server")

    before = contents(dir)
    install(dir, "--replace")
    assert_equal before, contents(dir), "a second run changes nothing"

    out, code = rails(dir, "destroy")
    assert_equal 0, code, out
    assert_equal original, contents(dir)
  end

  # Whether the entrypoint prepares the database before this command.
  def prepares?(dir, *command)
    Dir.mktmpdir("firebrick-entrypoint") do |folder|
      FileUtils.mkdir_p([File.join(folder, "bin"), File.join(folder, "path")])
      %w[bin/rails bin/thrust bin/jobs path/bundle].each { |name| File.write(File.join(folder, name), "#!/bin/sh\necho $*\n", perm: 0o755) }
      out, status = Open3.capture2e({ "PATH" => "#{folder}/path:#{ENV.fetch('PATH')}" }, "bash", "-e", File.join(dir, "bin/docker-entrypoint"), *command, chdir: folder)
      assert_predicate status, :success?, out
      return out.include?("db:prepare")
    end
  end

  it "changes the Dockerfile of Rails 7.1, whose port is that of config/puma.rb" do
    dir = app(Dockerfile: DOCKERFILE_7_1, "bin/docker-entrypoint": ENTRYPOINT_7_1, "config/deploy.yml": KAMAL)
    out = install(dir, "--force")
    assert_equal ["EXPOSE 3000", 'CMD ["bundle", "exec", "firebrick"]'], lines(dir, "Dockerfile").last(2)
    assert_match(/sends to port 80, the container listens on 3000: write `app_port: 3000`/, out)
    assert prepares?(dir, "bundle", "exec", "firebrick")
    refute prepares?(dir, "./bin/jobs")
  end

  it "translates commands for a shell and flags of `rails server`, and says what it cannot translate" do
    { "CMD bundle exec rails s -b 0.0.0.0 -p 8080\n" => ["EXPOSE 8080", "CMD bundle exec firebrick --host 0.0.0.0 -p 8080"],
      "EXPOSE 3000\nCMD [\"bundle\", \"exec\", \\\n     \"puma\", \"-p\", \"4000\"]\n" => ["EXPOSE 3000", 'CMD ["bundle", "exec", "firebrick", "-p", "4000"]'],
      "ENV PORT=8080\nCMD bin/rails db:prepare && bin/rails server" => ["ENV PORT=8080", "EXPOSE 3000", "CMD bin/rails db:prepare && bundle exec firebrick"] }
      .each do |text, expected|
        changed = dockerfile(text)
        assert_equal expected, changed.lines(chomp: true).grep_v(/\A\s*(#|FROM)/)
        assert_equal "FROM ruby\n#{text.chomp}\n", Firebrick::Generators::Dockerfile.remove(changed)
      end
    ["CMD [\"bin/rails\", \"server\", \"--log-to-stdout\"]\n", "CMD [\"bin/unicorn\"]\n", ""].each do |text|
      changed, about = dockerfile(text)
      assert_equal "FROM ruby\n#{text}", changed
      assert_match(/\ADockerfile: .*write: CMD/, about)
    end
  end

  def dockerfile(text)
    $LOAD_PATH.unshift(RubyProgram::LIB) unless $LOAD_PATH.include?(RubyProgram::LIB)
    %w[dockerfile start_command].each { |name| require "generators/firebrick/install/#{name}" }
    Firebrick::Generators::Dockerfile.new("FROM ruby\n#{text}", Firebrick::Generators::StartCommand.new(nil), 3000).install
  end

  it "adds an objective as a key, wherever the keys end" do
    require File.join(RubyProgram::LIB, "generators/firebrick/install/settings_text")
    { "" => "S", "# Ours\n" => "# OursS", "# Ours\n\n[hub]\npath = \"/c\"\n" => "# OursS\n\n[hub]\npath = \"/c\"",
      "bind = [\n  \"tcp://a\",\n]\n# more\n" => "bind = [\n  \"tcp://a\",\n]S\n# more", "[limits]\nslo = 1\n" => "S\n[limits]\nslo = 1" }.each do |text, expected|
      expected = "#{expected.sub('S', "\nslo = \"p95 < 1s\"")}\n".delete_prefix("\n")
      changed = Firebrick::Generators::SettingsText.with_objective(text, "p95 < 1s")
      assert_equal expected, changed
      assert_equal changed, Firebrick::Generators::SettingsText.with_objective(changed, "p95 < 1s")
      assert_equal text, Firebrick::Generators::SettingsText.without_options(changed) unless text.include?("[")
    end
  end

  it "writes nothing with --pretend" do
    dir = app(Procfile: "web: bundle exec puma\n", Dockerfile: DOCKERFILE_8)
    before = contents(dir)
    out = install(dir, "--pretend", "--force", "--hub", "--slo", "p95 < 200ms", "--replace")
    assert_match(/create +firebrick.toml/, out)
    assert_match(/force +Dockerfile/, out)
    assert_equal before, contents(dir)

    install(dir, "--force")
    before = contents(dir)
    out, code = rails(dir, "destroy", "--pretend")
    assert_equal 0, code, out
    assert_match(/remove +firebrick.toml/, out)
    assert_equal before, contents(dir)
  end

  it "asks before it changes a file, shows the difference, and skips it" do
    dir = app(Procfile: "web: bundle exec puma\n", Dockerfile: DOCKERFILE_8)
    out = install(dir, input: "y\nd\nn\ny\n")
    assert_match(/conflict +Gemfile.*conflict +Procfile.*conflict +Dockerfile/m, out)
    assert_match(/^\+web: bundle exec firebrick$/, out)
    assert_equal "web: bundle exec puma\n", read(dir, "Procfile")
    assert_match(/^CMD .*firebrick/, read(dir, "Dockerfile"))

    install(dir, "--skip")
    assert_equal "web: bundle exec puma\n", read(dir, "Procfile")
  end

  it "adds the hub and an objective, also to a firebrick.toml that exists" do
    dir = app("config/cable.yml": CABLE, "firebrick.toml": "# Ours\nport = 4000\n\n[limits]\nmax_body = \"1MB\"\n")
    install(dir, "--force", "--hub", "--slo", "p95 < 200ms")
    assert_equal "# Ours\nport = 4000\nslo = \"p95 < 200ms\"\n\n[limits]\nmax_body = \"1MB\"\n\n[hub]\npath = \"/cable\"\n", read(dir, "firebrick.toml")
    assert_equal CABLE.sub("  adapter: solid_cable", "  # Before firebrick:install: adapter: solid_cable\n  adapter: firebrick"), read(dir, "config/cable.yml")
    check = assert_valid(dir)
    assert_match(/slo = .*200/, check)
    assert_match(/hub\.path = /, check)

    before = contents(dir)
    install(dir, "--hub", "--slo", "p95 < 200ms")
    assert_equal before, contents(dir)
    install(dir, "--force", "--slo", "p99 < 1s")
    assert_equal before.first["firebrick.toml"].sub("p95 < 200ms", "p99 < 1s"), read(dir, "firebrick.toml")

    out, code = rails(dir, "destroy")
    assert_equal 0, code, out
    assert_match(/firebrick.toml: it has other lines/, out)
    assert_path_exists File.join(dir, "firebrick.toml")
    assert_equal CABLE, read(dir, "config/cable.yml")
  end

  it "refuses what the server would refuse, and changes nothing" do
    dir = app("config/puma.rb": "threads 1, 2\nwroker_timeout 30\n")
    before = contents(dir)
    out, code = rails(dir, "generate", "--force")
    assert_equal 1, code, out
    assert_match(%r{config/puma.rb:2: wroker_timeout: Puma has no such setting; did you mean "worker_timeout"\?}, out)
    assert_match(/Mend it/, out)
    out, code = rails(dir, "generate", "--force", "--slo", "fast")
    assert_equal 1, code, out
    assert_match(/--slo fast: expected "p50 < TIME"/, out)
    assert_equal before, contents(dir)
  end

  it "writes a short file where there is no config/puma.rb, and paths that hold elsewhere where there is one" do
    dir = app("config/puma.rb": nil)
    install(dir, "--force")
    assert_equal ["port = 3000"], lines(dir, "firebrick.toml")

    dir = app("config/puma.rb": "root = File.expand_path('..', __dir__)\nbind \"unix://\#{root}/tmp/app.sock\"\npidfile \"\#{Dir.pwd}/tmp/server.pid\"\nstate_path Rails.root.join('tmp/state').to_s\n")
    install(dir, "--force")
    assert_equal ['bind = ["unix://tmp/app.sock"]', 'pidfile = "tmp/server.pid"', 'state_path = "tmp/state"'], lines(dir, "firebrick.toml").map { |line| line.sub(/ +#.*/, "") }.sort
    assert_valid(dir)
  end

  it "takes back a fresh installation" do
    dir = app
    before = contents(dir)
    out = install(dir, "--force", "--hub", "--slo", "p95 < 200ms", "--replace")
    assert_match(%r{config/cable.yml: there is no section `production:` with lines of its own}, out, "its section is one line of ERB")
    out, code = rails(dir, "destroy")
    assert_equal 0, code, out
    assert_equal before, contents(dir)
  end

  it "the app is served with the settings written, and `bin/rails server` takes Firebrick" do
    dir = app(Gemfile: with_firebrick)
    install(dir, "--force", "--replace", "--hub", "--slo", "p95 < 500ms")
    assert_equal with_firebrick.sub('gem "puma"', '# Before firebrick:install: gem "puma"'), read(dir, "Gemfile")
    own = start(directory: dir, workers: 1, threads: nil, environment: nil, binds: nil, env: { **RailsApp::ENVIRONMENT, "RAILS_ENV" => "production" })
    assert_status 200, get("/", to: own)
    assert_match(/^listen|Listening/i, own.stdout)
    assert_equal "p95 < 500ms", own.control("/shape")["objective"]

    files = all_files(dir).to_h { |name| [name, File.binread(File.join(dir, name))] }.merge("tmp/pids/.keep" => "", "log/.keep" => "")
    port = free_port
    server = program(command: [ENV.fetch("RUBY", "ruby"), "bin/rails", "server", "-p", port.to_s, "-b", "127.0.0.1"], files: files, env: RailsApp::ENVIRONMENT)
    assert fetch_soon(port, "/")
    assert_match(/Firebrick/, server.output)
    server.signal("INT")
    assert_equal 0, server.wait_exit
  end
end
