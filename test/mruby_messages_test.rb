# frozen_string_literal: true

# Messages about mruby handlers: the handlers that run and their paths, and the faults of those that do not.

require "support/case"

class MrubyMessagesTest < Case
  parallel!

  OK = "->(env) { [200, {}, [\"ok\"]] }\n"

  def setup
    mruby_only
  end

  # Runs a command in a directory with these files: [stdout, stderr, exit status].
  def run_in_folder(files, *args)
    own = Server.new(files: files, workers: nil, threads: nil)
    own.command_line(*args)
  ensure
    own.finish
  end

  def refused(code)
    out, err, status = run_in_folder({ "h.rb" => code }, "check", "h.rb", "--mruby")
    assert_equal 1, status, out
    err
  end

  it "lists the handlers and their routes" do
    own = start(files: { "limit.rb" => "->(env) { [399, {}, []] }", "api/v2.rb" => OK }, workers: nil, threads: nil,
                settings: "[routes]\n\"/\" = [\"limit.rb\", \"api/v2.rb\"]\n\"/api\" = \"api/v2.rb\"\n")
    assert_match(%r{^\* mruby \d\S+: limit\.rb, api/v2\.rb at /$}, own.stdout)
    assert_match(%r{^\* mruby \d\S+: api/v2\.rb at /api$}, own.stdout)
    assert_equal "ok", get("/", to: own).body
  end

  it "checks and explains routes" do
    files = { "h.rb" => OK, "firebrick.toml" => "[routes]\n\"/api\" = \"h.rb\"\n", "index.html" => "page" }
    out, _, status = run_in_folder(files, "check")
    assert_equal 0, status
    assert_match(%r{^  mruby +h\.rb at /api$}, out)
    assert_match(/The handler loads on mruby/, out)
    assert_match(%r{\AFirst h\.rb at /api on mruby; .*399}, run_in_folder(files, "explain", "/%61pi/x")[0])
    refute_match(/mruby/, run_in_folder(files, "explain", "/index.html")[0])
  end

  it "shows where code is invalid" do
    assert_match(/h\.rb:3: syntax error.*\n  \}\n   \^\n/, refused("lambda { |env|\n  [200, {}, []\n}\n"))
    assert_match(/h\.rb:3: at load \(RuntimeError\)\n  raise "at load"\n/, refused("\n\nraise \"at load\"\n"))
    assert_match(/h\.rb:2: undefined method 'nonsense'(?: for Object)? \(NoMethodError\)\n  def inner\(\) nonsense end\n/, refused("\ndef inner() nonsense end\ninner\n"))
    assert_match(/h\.rb:1: cannot load such file -- missing\.rb .*\n  require "missing"\n/, refused("require \"missing\"\n#{OK}"))
    assert_match(/h\.rb:1: uninitialized constant File: handlers have no files/, refused("File.read('x')\n#{OK}"))
    assert_match(/h\.rb: it is not UTF-8/, refused("\xff\xfe".b))
  end

  it "explains what the last value must be" do
    { "42" => "the last value is 42; expected an object that responds to call(env)", "" => "the last value is nil;",
      "class App\n  def call(env) end\nend\nApp" => "the last value is App; expected App.new" }.each { |code, why| assert_includes refused(code), why }
  end

  it "reports mistakes in [routes]" do
    { '"api" = "h.rb"' => 'expected a path that begins with / such as "/api"', '"/api" = "nope.rb"' => "expected a file that exists",
      '"/api" = { mruby = "h.rb", deadlin = "3s" }' => 'deadlin: unknown key; did you mean "deadline"?',
      '"/api" = { mruby = "h.rb", deadline = "3 parsecs" }' => 'routes."/api".deadline = "3 parsecs": expected a time such as',
      '"/api" = { file = "h.rb" }' => 'expected mruby = "handler.rb"', '"/api" = 5' => "expected the path of a handler",
      '"/api" = []' => "expected the path of a handler", "\"/a\" = \"h.rb\"\n\"/a/\" = \"h.rb\"" => "this route is there twice" }.each do |line, why|
      _, err, status = run_in_folder({ "h.rb" => OK, "firebrick.toml" => "[routes]\n#{line}\n" }, "check")
      assert_equal [1, true], [status, err.include?("firebrick.toml:#{line.lines.size + 1}: ")], err
      assert_includes err, why
    end
  end

  it "explains how to name a handler on the command line" do
    { %w[serve nope.rb --mruby] => "expected with --mruby the file of a handler", %w[serve . --mruby] => "such as handler.rb",
      %w[serve --mruby] => "such as handler.rb", %w[serve h.rb] => "a handler for mruby is served with --mruby" }.each do |words, why|
      _, err, status = run_in_folder({ "h.rb" => OK }, *words)
      assert_equal [2, true], [status, err.include?(why)], err
    end
  end

  it "reports what is wrong with a response" do
    kinds = { "nil" => "returned nil instead of [status, headers, body]", '"text"' => 'returned "text" instead of', '[200, {}, "text"]' => 'such as ["text"]',
              "[200, 'x', []]" => 'the headers "x" are not a Hash', "[:ok, {}, []]" => "the status :ok is not a number", "[600, {}, []]" => "200 to 599 can be sent",
              "[200, {'a b' => 'c'}, []]" => 'a field named "a b"', "raise 'oh'" => "oh (RuntimeError)" }
    code = kinds.keys.each_with_index.map { |kind, number| "when \"/#{number}\" then #{kind}" }.join("\n")
    own = start(files: { "h.rb" => "lambda do |env|\ncase env['PATH_INFO']\n#{code}\nend\nend" }, settings: "[routes]\n\"/\" = \"h.rb\"\n", workers: nil, threads: nil)
    kinds.each_value.with_index do |why, number|
      assert_status 500, get("/#{number}", to: own)
      line = wait_until("the log line") { own.stderr.lines.grep(%r{GET /#{number}: }).last }
      assert_includes line, why
      assert_includes line, "h.rb"
    end
    assert_logged(/oh \(RuntimeError\) at \S+h\.rb:10$/, on: own)
  end

  it "logs bodies that fail, but not clients that disconnect" do
    own = start(files: { "h.rb" => <<~'RUBY' }, settings: "[routes]\n\"/\" = \"h.rb\"\n", workers: nil, threads: nil)
      class Body
        def initialize(fails)
          @fails = fails
        end

        def each
          1000.times do |number|
            yield "x" * 10_000
            raise "no more" if @fails && number == 2
            sleep 0.001
          end
        end

        def close
          warn "closed"
        end
      end
      ->(env) { [200, {}, Body.new(env["PATH_INFO"] == "/fails")] }
    RUBY
    connection = connect(own).tap { |it| it.write(request("GET", "/leaves")) }
    connection.read_head
    connection.close
    wait_until("the body to be closed") { own.stderr.include?("closed") }
    assert_equal 1, own.stderr.lines.size, own.stderr
    connect(own).tap { |it| it.write(request("GET", "/fails")) }.ended?
    wait_until("the failure") { own.stderr.include?("h.rb (route /): after the response had started: mruby raised: no more (RuntimeError)") }
  end

  it "defines no names that handlers may want to define" do
    own = start(files: { "h.rb" => <<~RUBY }, settings: "[routes]\n\"/\" = \"h.rb\"\n", workers: nil, threads: nil)
      class Task
        attr_reader :title
        def initialize(title) @title = title end
      end
      Channel = Struct.new(:name, keyword_init: true)
      module Shop; class Cart; end; end
      def helper(value) value * 2 end
      lambda do |env|
        found = task { helper(21) }.join
        [200, {}, [[Task.new("a").title, Channel.new(name: "b").name, Shop::Cart.name, ::Task.to_s, Object.const_get(:Shop).to_s, found, self.to_s].inspect]]
      end
    RUBY
    assert_equal '["a", "b", "Shop::Cart", "Task", "Shop", 42, "main"]', get("/", to: own).body
  end
end
