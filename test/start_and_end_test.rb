# frozen_string_literal: true

# The start and the end of a server: a template whose app hangs, starts threads or kills it; signals to the whole process
# group; code that runs at exit.

require "support/case"
require "support/load"

class StartAndEndTest < Case
  parallel! slow: 25

  TEXT = '{ "content-type" => "text/plain" }'

  def served(app, **options)
    firebrick_only
    skip "workers that are spawned are not forked" unless Server.cruby?
    start(app: app, **options)
  end

  # Returns exit code and output of a server that is expected to fail.
  def failing(app, within: 60, **options)
    firebrick_only
    skip "workers that are spawned are not forked" unless Server.cruby?
    own = Server.new(app: app, exit_code: :any, **options)
    @own_servers << own
    own.launch
    [own.wait_exit(within: within), own.stderr]
  end

  it "finishes all requests when QUIT reaches the whole process group" do
    own = served("run ->(_) { sleep 0.05; [200, #{TEXT}, ['fine']] }", workers: 2)
    load = Load.new(own.address, clients: 4).start
    wait_until("load") { load.completed.size > 10 }
    Process.kill("QUIT", -own.pid)
    assert_equal 0, own.wait_exit
    load.stop
    assert_equal [200], load.completed.map(&:status).uniq
    refute_match(/died|SIGQUIT/, own.stderr)
  end

  it "replaces a worker that gets QUIT, as one that gets TERM, and the template does not care" do
    own = served("run ->(_) { [200, #{TEXT}, [Process.pid.to_s]] }", workers: 1)
    template = Processes.templates(own.pid).first.pid
    before = get("/", to: own).body
    Process.kill("QUIT", template)
    Process.kill("QUIT", before.to_i)
    wait_until("another worker") { get("/", to: own).body != before }
    assert_equal [template], Processes.templates(own.pid).map(&:pid)
    wait_until("its record") { own.control("/deaths").size == 1 }
    assert_equal 0, own.control("/deaths").first["exit_code"]
  end

  it "gives up when templates die before a worker is ready, and says so" do
    code, log = failing(<<~RUBY, workers: 2)
      require "firebrick"
      Firebrick.before_worker_fork { Process.kill(:KILL, Process.pid) }
      run ->(_) { [200, #{TEXT}, []] }
    RUBY
    assert_equal 1, code
    assert_match(/the template keeps dying before a worker is ready/, log)
  end

  it "gives up when workers die before they are ready although templates die as well" do
    code, log = failing(<<~RUBY, workers: 1, leaves: ["forks.log"])
      require "firebrick"
      forks = File.join(__dir__, "forks.log")
      Firebrick.before_worker_fork { File.write(forks, ".", mode: "a"); Process.kill(:KILL, Process.pid) if File.size(forks) == 1 }
      Firebrick.after_fork { exit! 3 }
      run ->(_) { [200, #{TEXT}, []] }
    RUBY
    assert_equal 1, code
    assert_match(/the workers exit before they are ready/, log)
  end

  { "in Ruby" => ["def hang = sleep\nhang", /config\.ru:1:in `hang'|config\.ru:1:in 'Object#hang'/],
    "in a lock" => ["q = Queue.new\nThread.new { sleep }\nq.pop", /config\.ru:3:in/] }.each do |where, (app, place)|
    it "says which time is over, and where the app hangs, #{where}" do
      code, log = failing(app, settings: { timeouts: { worker_boot: "10s" } })
      assert_equal 1, code
      assert_match(/the app did not load within timeouts\.worker_boot \(10 s\); it was here:\n/, log)
      assert_match(place, log)
    end
  end

  it "says where a worker hangs before it is ready" do
    app = "require 'firebrick'\nFirebrick.after_fork { sleep }\nrun ->(_) { [200, #{TEXT}, []] }"
    code, log = failing(app, within: 120, settings: { timeouts: { worker_boot: "6s" } })
    assert_equal 1, code
    assert_match(/did not get ready within timeouts\.worker_boot and was killed/, log)
    assert_match(/worker 0 \(pid \d+\):     .*config\.ru:2:in/, log)
  end

  it "says where a puma.rb hangs" do
    code, log = failing("run ->(_) { [200, #{TEXT}, []] }", files: { "config/puma.rb" => "workers 1\nsleep\n" }, args: ["--worker-boot-timeout", "10s"])
    assert_equal 1, code
    assert_match(%r{config/puma\.rb was not evaluated within timeouts\.worker_boot \(10 s\); it was here:\n}, log)
    assert_match(%r{config/puma\.rb:2:in}, log)
  end

  it "warns of threads that were started while the app loaded, and where they are" do
    own = served(<<~RUBY)
      Thread.new { sleep }.name = "the scheduler"
      safe = Thread.new { sleep }
      safe.thread_variable_set(:fork_safe, true)
      Thread.new { nil }.join
      run ->(_) { [200, #{TEXT}, [Thread.list.size.to_s]] }
    RUBY
    assert_match(/warning: a thread was started while the app loaded, and it does not run in the workers/, own.stdout)
    assert_match(/the scheduler.*config\.ru:1/, own.stdout)
    assert_equal 1, own.stdout.scan("#<Thread").size
    out, = own.command_line("check", own.dir)
    assert_match(/the scheduler/, out)
  end

  it "says nothing of threads where there are none" do
    own = served("run ->(_) { [200, #{TEXT}, []] }")
    refute_match(/thread was|threads were/, own.stdout)
  end

  it "runs at_exit of a puma.rb in the process that has evaluated it, once" do
    file = <<~'RUBY'
      MAIN = Process.pid
      ENV["MAIN"] = MAIN.to_s
      workers 2
      at_exit { File.write(File.expand_path("../ends.log", __dir__), "#{MAIN}\n", mode: "a") if Process.pid == MAIN }
    RUBY
    own = served("run ->(_) { [200, #{TEXT}, [ENV['MAIN']]] }", files: { "config/puma.rb" => file }, workers: nil, threads: nil, leaves: ["ends.log"])
    main = get("/", to: own).body
    refute_path_exists own.path("ends.log")
    own.signal("TERM")
    assert_equal 0, own.wait_exit
    assert_equal ["#{main}\n"], File.readlines(own.path("ends.log"))
  end
end
