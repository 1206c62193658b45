# frozen_string_literal: true

# Processes that the app forks from the template and from workers. They hold no descriptors of the server, and neither they nor the death of a
# template keep the server from noticing that a process has ended.

require "support/case"
require "support/reloading"

class AppProcessesTest < Case
  parallel! slow: true

  include Reloading

  # Forks helpers as apps do: while loading, in a hook of the template, in a worker before and after it serves.
  FORKING = <<~'RUBY'
    require "firebrick"
    def helper(name)
      pid = fork { trap("TERM", "DEFAULT"); sleep }
      File.write(File.join(__dir__, "helpers.log"), "#{name} #{pid}\n", mode: "a")
    end
    helper("loading")
    Firebrick.before_worker_fork { helper("before_worker_fork") if (@forks = @forks.to_i + 1) == 1 }
    Firebrick.after_fork { helper("after_fork") }
    text = { "content-type" => "text/plain" }
    run lambda { |env|
      helper("serving") if env["PATH_INFO"] == "/fork"
      [200, text, [Process.pid.to_s]]
    }
  RUBY

  # The same by the C library's fork(), which bypasses Ruby's hooks: such helpers keep all descriptors.
  SILENT = <<~'RUBY'
    require "fiddle"
    require "firebrick"
    LIBC = %w[fork pause].to_h { |name| [name, Fiddle::Function.new(Fiddle.dlopen(nil)[name], [], Fiddle::TYPE_INT)] }
    def helper(name)
      pid = LIBC["fork"].call
      loop { LIBC["pause"].call } if pid.zero?
      File.write(File.join(__dir__, "helpers.log"), "#{name} #{pid}\n", mode: "a")
    end
    helper("loading")
    Firebrick.after_fork { helper("after_fork") }
    text = { "content-type" => "text/plain" }
    run ->(_) { [200, text, [Process.pid.to_s]] }
  RUBY

  def teardown
    @helpers.to_a.each { |path| kill_helpers(path) }
    super
  end

  def serve(app, **options)
    firebrick_only
    skip "workers that are spawned fork nothing" unless Server.cruby?
    own = launch_app(app: app, leaves: ["helpers.log"], **options)
    (@helpers ||= []) << own.path("helpers.log")
    own
  end

  # The targets of a process's descriptors.
  def descriptors(pid)
    Dir["/proc/#{pid}/fd/*"].filter_map { |path| File.readlink(path) rescue nil }
  end

  # Name => process ids.
  def helpers(own)
    lines = File.readlines(own.path("helpers.log"), chomp: true).map(&:split)
    lines.group_by(&:first).transform_values { |all| all.map { |_, pid| pid.to_i } }
  end

  def kill_helpers(path)
    return unless File.exist?(path)

    File.readlines(path).map { |line| line.split.last.to_i }.each do |pid|
      Process.kill("KILL", pid) if Processes.alive?(pid)
    rescue Errno::ESRCH
      next
    end
  end

  def ids(own) = own.stats["workers"].map { |worker| worker["pid"] }.sort

  def leaving(own) = own.stats["workers"].reject { |worker| worker["state"] == "ready" }

  it "lets them hold nothing of the server's" do
    skip "needs /proc" unless File.directory?("/proc/self/fd")
    own = serve(FORKING, workers: 2)
    get("/fork", to: own)
    found = helpers(own)
    assert_equal %w[after_fork before_worker_fork loading serving], found.keys.sort
    # Descriptors that the front has inherited from the processes that started it are ignored.
    ours = (own.processes.map(&:pid) - found.values.flatten - [own.pid]).flat_map { |pid| descriptors(pid) } - descriptors(own.pid)
    found.each do |name, pids|
      pids.each do |pid|
        assert_empty descriptors(pid).grep(/socket:|memfd:/) + (descriptors(pid).grep(/pipe:/) & ours), "the helper of #{name}"
      end
    end
  end

  # Every way of Ruby to make a process while a request is served.
  WAYS = <<~'RUBY'
    def note(name, pid) = File.write(File.join(__dir__, "helpers.log"), "#{name} #{pid}\n", mode: "a")
    SLEEP = "exec sleep 1000"
    run lambda { |env|
      case env["PATH_INFO"]
      when "/fork" then note("fork", fork { trap("TERM", "DEFAULT"); sleep })
      when "/thread" then Thread.new { note("thread", fork { sleep }) }.join
      when "/popen-fork" then (IO.popen("-") || begin; sleep; end).then { |io| ($kept ||= []) << io; note("popen-fork", io.pid) }
      when "/popen" then IO.popen(SLEEP).then { |io| ($kept ||= []) << io; note("popen", io.pid) }
      when "/spawn" then note("spawn", spawn(SLEEP))
      when "/system" then system("sleep 1000 & echo system $! >> #{File.join(__dir__, 'helpers.log')}")
      when "/daemon" then Process.wait(fork { Process.daemon(true, true); note("daemon", Process.pid); sleep })
      end
      [200, { "content-type" => "text/plain" }, ["done"]]
    }
  RUBY
  SHAPES = { "threads" => { threads: "3:3" }, "fibers" => { threads: "1:1", settings: { fibers: 10 } } }.freeze

  # The kernel objects without a name that a process forked from a Ruby without a server has.
  def anonymous_of_ruby
    code = <<~'RUBY'
      r, w = IO.pipe
      pid = fork { w.write("x"); sleep }
      r.read(1)
      puts Dir["/proc/#{pid}/fd/*"].filter_map { |fd| File.readlink(fd) rescue nil }.grep(/anon_inode/)
      Process.kill("KILL", pid)
    RUBY
    IO.popen([RbConfig.ruby, "-e", code], &:readlines).map(&:chomp).sort
  end

  SHAPES.each do |shape, options|
    it "lets none of their kinds hold sockets, memory, timers or wake-ups of the server's, with #{shape}" do
      skip "needs /proc" unless File.directory?("/proc/self/fd")
      own = serve(WAYS, workers: 1, **options)
      # The first requests make everything that a worker has.
      Array.new(5) { Thread.new { get("/", to: own) } }.each(&:join)
      WAYS.scan(%r{when "(/[\w-]+)"}).flatten.each { |path| assert_status 200, get(path, to: own) }
      expected = anonymous_of_ruby
      wait_until("all helpers") { helpers(own).size == WAYS.scan("when ").size }
      helpers(own).each do |name, (pid)|
        held = descriptors(pid)
        assert_empty held.grep(/socket:|memfd:|timerfd|pidfd/), name
        assert_operator held.grep(/anon_inode/).size, :<=, expected.size, "#{name}: #{held}, and without a server #{expected}"
      end
      assert_status 200, get("/", to: own)
    end
  end

  { "that are forked by Ruby" => FORKING, "that nobody hears of" => SILENT }.each do |kind, app|
    it "notices who has ended, with helpers #{kind}" do
      own = serve(app, workers: 2)
      before = ids(own)
      template = templates(own).first.pid
      Process.kill("KILL", template)
      assert_logged(/the template has died; its workers keep serving/, on: own)
      wait_until("workers of a new template", within: 60) { (ids(own) & before).empty? && leaving(own).empty? && ids(own).size == 2 }
      assert_equal 1, (templates(own).map(&:pid) - helpers(own).values.flatten).size
      assert_status 200, get("/", to: own)
      wait_until("records of both") { own.control("/deaths").size == 2 }
      assert_equal [["drain", 0]], own.control("/deaths").map { |death| death.values_at("cause", "exit_code") }.uniq, "their ends are known"
    end

    it "notices orphans that are killed, and ends by TERM, with helpers #{kind}" do
      # If the template cannot be restarted, its workers stay as they are.
      own = serve("raise 'not again' if File.exist?(File.join(__dir__, 'broken.log'))\n#{app}", workers: 2)
      before = ids(own)
      File.write(own.path("broken.log"), "")
      Process.kill("KILL", templates(own).first.pid)
      assert_logged(/the app cannot be loaded again/, on: own)
      Process.kill("KILL", before.first)
      wait_until("one worker is left") { ids(own) == before.drop(1) }
      record = own.control("/deaths").first
      assert_equal ["signal", 9, before.first], record.values_at("cause", "signal", "pid")
      assert_status 200, get("/", to: own)
      own.signal("TERM")
      assert_equal 0, own.wait_exit
    end
  end

  it "ends by TERM when helpers hold all links and the template" do
    own = serve(SILENT, workers: 2)
    own.signal("TERM")
    assert_equal 0, own.wait_exit
  end

  # A puma.rb with a job that names its release; its processes are found by that.
  JOB = <<~'RUBY'
    workers 2
    before_fork { @job ||= spawn("exec sleep 100#{File.read(File.expand_path('../version.txt', __dir__)).size}") }
  RUBY

  def with_job
    firebrick_only
    skip "workers that are spawned fork nothing" unless Server.cruby?
    # A firebrick.toml would take precedence over the puma.rb.
    start(app: Reloading::APP, files: { "config/puma.rb" => JOB, "version.txt" => "one" }, workers: nil, threads: nil, args: ["--reload-watch", "0s"])
  end

  def jobs(own)
    Processes.in_directory(own.base).map { |one| Processes.command(one.pid) }.grep(/\Asleep 100\d\z/)
  end

  it "runs one job of a puma.rb, that of the code that serves, across reloads" do
    own = with_job
    wait_until("the job") { jobs(own) == ["sleep 1003"] }
    deploy(own, "three")
    assert_reloads(own)
    wait_until("the job of the new code alone") { jobs(own) == ["sleep 1005"] }
    assert_reloads(own, "--undo")
    # The hooks read the file that exists now.
    wait_until("a job of the old template again") { own.stderr.include?("running the before_fork hooks again") && jobs(own).size == 1 }
    File.write(own.path("config.ru"), "raise 'broken'")
    assert_equal 1, reload(own).last
    assert_equal 1, jobs(own).size
    own.signal("TERM")
    assert_equal 0, own.wait_exit
    assert_empty jobs(own)
  end

  it "brings the job back when new code that has one fails its trial" do
    own = with_job
    app = File.read(own.path("config.ru"))
    deploy(own, "three")
    File.write(own.path("config.ru"), "run ->(env) { [500, {}, []] }")
    assert_equal 1, reload(own).last
    File.write(own.path("config.ru"), app)
    wait_until("one job") { jobs(own).size == 1 }
  end

  it "has one job after the template was killed" do
    own = with_job
    Process.kill("KILL", templates(own).first.pid)
    assert_logged(/a new template has loaded the app/, on: own)
    wait_until("one job") { jobs(own).size == 1 }
  end

  it "never signals a worker that has ended" do
    skip "needs strace" unless system("strace -V", out: File::NULL, err: File::NULL)
    own = serve(SILENT, workers: 1)
    template = templates(own).first.pid
    worker = ids(own).first
    # Dead, the template cannot report that a worker has ended.
    trace = own.path("trace.log")
    tracer = Process.spawn("strace", "-f", "-e", "trace=kill,tgkill,pidfd_send_signal", "-o", trace, "-p", own.pid.to_s, %i[out err] => File::NULL)
    wait_until("strace") { File.exist?(trace) && File.read("/proc/#{own.pid}/status")[/TracerPid:\s*(\d+)/, 1].to_i.positive? }
    [template, worker].each { |pid| Process.kill("KILL", pid) }
    wait_until("another worker", within: 60) { ids(own).any? && ids(own) != [worker] && leaving(own).empty? }
    sleep 2
    Process.kill("TERM", tracer)
    Process.wait(tracer)
    refute_match(/\bkill\(#{worker},/, File.read(trace))
  ensure
    File.unlink(trace) if trace && File.exist?(trace)
  end
end
