# frozen_string_literal: true

# `rack.yjit`: when Ruby's compiler is switched on, and by which setting, and the server's messages about it. Rubies differ: some are built
# without it; before 3.3 it is chosen when Ruby starts.

require "net/http"
require "open3"
require "support/case"
require "support/ruby_program"

class YjitTest < Case
  parallel!

  RUBY = ENV.fetch("RUBY", "ruby")
  APP = <<~'RUBY'
    state = -> { defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled? ? "on" : "off" }
    loaded = state.call
    run lambda { |env| [200, { "content-type" => "text/plain" }, ["#{loaded} #{state.call}"]] }
  RUBY
  # Stands in for a Ruby of 3.3 or later with YJIT, because not every machine has one.
  SWITCHABLE = <<~'RUBY' + APP
    switch = Module.new do
      def self.enabled? = @on ? true : false
      def self.enable = @on = true
    end
    RubyVM.send(:remove_const, :YJIT) if defined?(RubyVM::YJIT)
    RubyVM.const_set(:YJIT, switch)
  RUBY
  # Stands in for Rails 7.2.
  RAILS = <<~'RUBY' + SWITCHABLE
    module Rails
      Config = Struct.new(:yjit)
      Application = Struct.new(:config)
      def self.application = @application ||= Application.new(Config.new(false))
    end
  RUBY

  def before_setup
    firebrick_only
    super
  end

  # The kind of this Ruby: :none, :at_start or :any_time.
  def self.kind
    @kind ||= begin
      source = "y = defined?(RubyVM::YJIT) && RubyVM::YJIT; print(!y ? :none : y.respond_to?(:enable) ? :any_time : :at_start)"
      Open3.capture2(RUBY, "-e", source).first.to_sym
    end
  end

  def kind = self.class.kind

  # Removes variables that would switch it on regardless of the setting.
  def serve(app = APP, yjit = nil, env: {}, **options)
    settings = yjit ? { rack: { yjit: yjit }, reload: { watch: "0s", keep: "0s" } } : {}
    start(app: app, settings: settings, env: { "RUBY_YJIT_ENABLE" => nil, "RUBYOPT" => nil, **env }, **options)
  end

  # Returns whether it was on while the app was loaded, and whether it is in a worker.
  def states(own)
    get("/", to: own).body.split.first(2)
  end

  it "is on in every Ruby that has it if it is asked for" do
    own = serve(APP, "on")
    case kind
    when :none
      assert_equal %w[off off], states(own)
      assert_match(/^\* YJIT is off, although rack.yjit is "on": this Ruby \(ruby \S+\) was built without it$/, own.stdout)
    when :at_start then assert_equal %w[on on], states(own)
    when :any_time then assert_equal %w[off on], states(own)
    end
    assert_equal kind != :none, own.stdout.lines.first.include?(" +YJIT, Rack")
    assert_equal own.stdout[/\(ruby (\S+)/, 1].delete(","), own.stats["ruby"]["version"]
  end

  it "is on by default from Ruby 3.3 on" do
    assert_equal kind == :any_time ? %w[off on] : %w[off off], states(own = serve)
    refute_includes own.stdout, "* YJIT"
    assert_equal kind == :any_time, own.stdout.lines.first.include?("+YJIT")
  end

  it "is off if it is turned off" do
    own = serve(APP, "off")
    assert_equal %w[off off], states(own)
    refute_includes own.stdout, "YJIT"
  end

  it "leaves Ruby's own variable in force when it is off" do
    skip "this Ruby was built without YJIT" if kind == :none
    own = serve(APP, "off", env: { "RUBY_YJIT_ENABLE" => "1" })
    assert_equal %w[on on], states(own)
    assert_includes own.stdout.lines.first, "+YJIT"
  end

  it "is switched on when the app is loaded, before workers are forked" do
    own = serve(SWITCHABLE)
    assert_equal %w[off on], states(own)
    assert_includes own.stdout.lines.first, "+YJIT"
    assert_equal %w[off off], states(serve(SWITCHABLE, "off"))
  end

  it "leaves it to Rails that has a setting for it, unless it is asked for" do
    assert_equal %w[off off], states(serve(RAILS))
    skip "this Ruby restarts for it" if kind == :at_start
    assert_equal %w[off on], states(serve(RAILS, "on"))
  end

  it "takes effect on a reload" do
    own = serve(SWITCHABLE, "off")
    assert_equal %w[off off], states(own)
    File.write(own.path("firebrick.toml"), File.read(own.path("firebrick.toml")).sub("off", "auto"))
    out, err, code = own.command_line("reload", own.dir)
    assert_equal 0, code, out + err
    assert_equal %w[off on], states(own)
  end

  it "evaluates puma.rb after Ruby has started again" do
    own = serve(args: %w[--yjit on], files: { "config/puma.rb" => "raise 'a variable is left' if ENV.key?('FIREBRICK_YJIT')\nthreads 1, 2\n" }, threads: nil)
    assert_equal kind == :none ? "off" : "on", states(own).last
    assert_includes own.stdout, "1:2 threads"
  end

  it "is reported by firebrick check" do
    own = Server.new(app: APP, settings: { rack: { yjit: "on" } })
    out, err, code = own.command_line("check", own.dir, "--ruby", RUBY)
    assert_equal ["", 0], [err, code]
    if kind == :none
      assert_match(/^The app loads .*\nYJIT is off, although rack.yjit is "on": this Ruby \(ruby \S+\) was built without it$/, out)
    else
      assert_match(/^The app loads in .* \(ruby \S+ \+YJIT, Rack /, out)
    end
  ensure
    FileUtils.remove_entry(own.base)
  end

  it "touches no process that is already there, unless it is asked for" do
    %w[auto on].each do |yjit|
      program = RubyProgram.new(<<~RUBY, env: { "RUBY_YJIT_ENABLE" => nil, "RUBYOPT" => nil })
        require "firebrick/server"
        state = -> { defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled? ? "on" : "off" }
        Firebrick::Server.new(->(_) { [200, {}, [state.call]] }, port: 0, quiet: false, yjit: #{yjit.inspect}).run
      RUBY
      body = Net::HTTP.get(URI("http://127.0.0.1:#{program.port}/"))
      assert_equal((yjit == "on" && kind == :any_time ? "on" : "off"), body)
      reason = { none: "was built without it", at_start: "can only do it when it starts; set RUBYOPT=--yjit" }[kind]
      assert_equal yjit == "on" && !reason.nil?, program.output.include?("although rack.yjit is \"on\""), program.output
      assert_includes program.output, reason if reason && yjit == "on"
    ensure
      assert_empty program.finish
    end
  end
end
