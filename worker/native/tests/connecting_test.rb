# frozen_string_literal: true

require "socket"
require "tmpdir"

# Tests a worker that is spawned and connects, from the front's side.
#
# CONNECTING_RUBY is the Ruby of that worker (by default the one under test). For Debian's jruby, with the gems of Debian:
#
#   GEM_PATH=/usr/share/rubygems-integration/all CONNECTING_RUBY=jruby ruby worker/native/tests/run.rb connecting
class ConnectingTest < Case
  RUBY = ENV["CONNECTING_RUBY"]&.split || FakeFront::RUBY
  # Virtual machines are slow to start.
  PATIENCE = Integer(ENV.fetch("CONNECTING_PATIENCE", "60"))
  # Removes features that TruffleRuby does not have.
  WITHOUT_DESCRIPTORS = ["-r", File.expand_path("../../../test/support/without_descriptors.rb", __dir__)].freeze
  TOKEN = "0123456789abcdef"

  # One end of a link, and the socket beside it.
  class Link < FakeFront::Worker
    def initialize(socket, beside)
      super(nil, 0, [socket])
      @beside = beside
    end

    def send_frame(bytes, link: 0, file: nil)
      @beside.send_io(file) if file
      super(bytes, link: link)
    end

    # The descriptors come on the other socket.
    def take(timeout: PATIENCE, &block)
      super(timeout: timeout, &block).tap { |frame| frame.fd ||= @beside.recv_io if frame.fd? }
    end
  end

  APP = <<~'RUBY'
    run lambda { |env|
      case env["PATH_INFO"]
      when "/body" then [200, {}, [env["rack.input"].read.bytesize.to_s, " ", env["rack.input"].class.name]]
      when "/stream" then [200, {}, ->(stream) { stream << "hello"; stream.close }]
      when "/file" then b = Object.new; def b.to_path; "config.ru"; end; def b.each; raise; end; [200, {}, b]
      when "/raise" then raise "boom"
      when "/hijack" then io = env["rack.hijack"].call; io << io.gets; io.close; [200, {}, []]
      when "/exit" then exit!(3)
      else [200, { "x-engine" => RUBY_ENGINE }, [env["PATH_INFO"]]]
      end
    }
  RUBY

  def connect(rackup = APP, options: [], **settings)
    Dir.mktmpdir("fb") do |dir|
      File.write(File.join(dir, "config.ru"), rackup)
      path = File.join(dir, "workers")
      server = UNIXServer.new(path)
      log = File.join(dir, "log")
      @abilities = options.empty? ? 3 : 0
      @pid = start(dir, path, log, options)
      control = hello(server, 0)
      @scoreboard = Tempfile.create("scoreboard", dir)
      @scoreboard.truncate(1024 + Wire::RECORDER)
      boot(control, dir, settings)
      yield server, control, log
    rescue Timeout::Error, FakeFront::Gone => e
      flunk "#{e.message}\n#{e.backtrace.first(8).join("\n")}\n#{File.read(log)}"
    ensure
      Process.kill("KILL", @pid) if @pid
      exit_code if @pid
      server&.close
    end
  end

  # Waits for the end of the process.
  def exit_code
    Process.wait2(@pid.tap { @pid = nil }).last.exitstatus
  end

  def start(dir, path, log, options)
    env = { "FIREBRICK_FRONT" => path, "FIREBRICK_TOKEN" => TOKEN, "FIREBRICK_WORKER" => "0", "FIREBRICK_PURE" => nil }
    spawn(env, *RUBY, *options, "-I", FakeFront::LIB, "-rfirebrick/pure/main", "-e", "Firebrick::Pure::Main.run", chdir: dir, %i[out err] => log)
  end

  def hello(server, role)
    eventually("a connection", within: PATIENCE) { server.wait_readable(0.1) || !alive?(@pid) }
    raise FakeFront::Gone, "the worker has ended" unless server.wait_readable(0)

    socket = server.accept
    length, kind, flags, zero, id = socket.read(12).unpack("VCCvV")
    assert_equal [6 + TOKEN.bytesize, Wire::KINDS[:hello], 0, 0, 0], [length, kind, flags, zero, id]
    payload = socket.read(length)
    assert_equal [[Wire::VERSION, role, @abilities, 0], TOKEN], [payload.unpack("vCCv"), payload.byteslice(6..)]
    socket
  end

  def boot(control, dir, settings)
    @abilities.zero? ? control.write("x") : control.send_io(@scoreboard)
    defaults = { wire: Wire::VERSION, app: File.join(dir, "config.ru"), dir: dir, environment: "production", threads_min: 2, threads_max: 2, fibers: 0, slice_us: 0, blocking_us: 0,
                 links: 1,
                 slot_len: 128 + Wire::RECORDER, slots: 1, temp_dir: dir, tag: "test", max_head: 65_536, response_memory: 1 << 20, response_spool: 1 << 20, early_hints: 1 }
    text = ["boot", *defaults.merge(settings).flatten].join("\0").b
    control.write([text.bytesize].pack("V") << text)
  end

  def serve_connected
    connect do |server, control, log|
      link = Link.new(hello(server, 1), hello(server, 2))
      assert_equal [@pid, 2], link.take { |frame| frame.kind == :ready }.payload.unpack("VV")
      yield link, log, control
    end
  end

  # One process for all checks, because it takes seconds to start.
  def test_it_serves_and_drains
    serve_connected do |link, log|
      assert_equal [200, "/x", false], link.get("/x", timeout: PATIENCE).values_at(0, 2, 3)
      eventually("the scoreboard shows it") { File.binread(@scoreboard.path, 8).unpack1("Q<") == 1 }
      ask_for_bodies(link)
      take_over(link)
      assert_equal [500, "Internal Server Error\n"], link.get("/raise", timeout: PATIENCE).values_at(0, 2)
      assert_match(%r{RuntimeError: boom \(GET /raise\)}, File.read(log))
      Process.kill("TERM", @pid)
      link.take { |frame| frame.kind == :stopping }
      link.drain
      assert_equal 0, exit_code
    end
  end

  def ask_for_bodies(link)
    assert_equal "3 StringIO", link.get("/body", method: "POST", body: "abc", timeout: PATIENCE)[2]
    Tempfile.create do |file|
      file.write("x" * 300_000)
      file.rewind
      2.times { file.rewind.then { assert_equal "300000 File", link.response(link.start(target: "/body", method: "POST", file: file, fd_length: 300_000), timeout: PATIENCE)[2] } }
    end
    assert_equal APP, link.get("/file", timeout: PATIENCE)[2]
  end

  def take_over(link)
    frame = link.take_for(link.start(target: "/stream"), :response)
    assert_predicate frame, :stream?
    assert_equal "hello", frame.fd.read
    id = link.start(target: "/hijack")
    socket = UNIXSocket.for_fd(link.take_for(id, :hijack).fd.tap { |io| io.autoclose = false }.fileno)
    socket << "line\n"
    assert_equal "line\n", socket.read
    refute_predicate link.take_for(id, :end), :end?
  end

  # A link without descriptors: instead of sending them, the worker connects.
  def streaming(app = APP)
    connect(app, options: WITHOUT_DESCRIPTORS) do |server, _, log|
      link = FakeFront::Worker.new(nil, 0, [hello(server, 1)])
      link.take(timeout: PATIENCE) { |frame| frame.kind == :ready }
      yield link, server, log
    end
  end

  # Sends a request with a body in frames of these sizes.
  def upload(link, id, parts, announced: parts.sum)
    frame = Wire.request(id, target: "/body", method: "POST", fd_length: announced)
    frame.setbyte(5, 0)
    frame.setbyte(14, 3)
    link.send_frame(frame + parts.map { |size| Wire.frame(:input, id, "y" * size) }.join)
  end

  def test_a_worker_without_descriptors
    streaming do |link, server, log|
      upload(link, 70, [1000, 1_000_000, 1])
      assert_equal [200, "1001001 File"], link.response(70, timeout: PATIENCE).values_at(0, 2)
      assert_equal APP, link.get("/file", timeout: PATIENCE)[2]
      id = link.start(target: "/stream")
      stream = hello(server, 3).tap { |socket| socket.write("\0") }
      assert_predicate link.take_for(id, :response), :stream?
      assert_equal "hello", stream.read
      assert_raises(Errno::EPIPE) { stream.write("to an app that does not read") }
      id = link.start(target: "/hijack")
      socket = hello(server, 3).tap { |one| one.write("\0") }
      link.take_for(id, :hijack)
      socket << "line\n"
      assert_equal "line\n", socket.read
      link.drain
      assert_equal 0, exit_code, File.read(log)
    end
  end

  def test_a_body_that_is_longer_than_it_was_said_to_be
    streaming do |link, _, log|
      upload(link, 71, [1000, 1001], announced: 2000)
      assert_equal 70, exit_code
      assert_match(/INPUT of more than the body's length/, File.read(log))
    end
  end

  def test_a_body_that_cannot_be_kept_fails_its_request_alone
    app = "require 'tempfile'; def Tempfile.create(*) raise(Errno::ENOSPC) end\n#{APP}"
    streaming(app) do |link, _, log|
      upload(link, 72, [1000, 1000])
      assert_equal [500, "Internal Server Error\n"], link.response(72, timeout: PATIENCE).values_at(0, 2)
      assert_match(/Errno::ENOSPC/, File.read(log))
      assert_equal "/x", link.get("/x", timeout: PATIENCE)[2]
    end
  end

  def test_a_byte_on_the_control_socket_ends_a_worker_that_is_not_wanted
    connect("sleep") do |_, control, log|
      control.write("x")
      assert_equal 0, exit_code, File.read(log)
      assert_path_exists File.join(File.dirname(log), "workers"), "it is the others', too"
    end
  end

  def test_a_front_that_hangs_up_does_not_want_it
    Dir.mktmpdir("fb") do |dir|
      server = UNIXServer.new(path = File.join(dir, "workers"))
      @abilities = 3
      @pid = start(dir, path, log = File.join(dir, "log"), [])
      hello(server, 0).close
      assert_equal [0, ""], [exit_code, File.read(log)]
    end
  end

  def test_the_end_of_the_front_is_its_end
    serve_connected do |_, _, control|
      control.close
      assert_equal 0, exit_code
    end
  end

  def test_an_app_that_cannot_be_loaded_is_reported
    connect("raise 'no database'") do |_, _, log|
      assert_equal 1, exit_code
      assert_match(/the app cannot be loaded:\nRuntimeError: no database\n.*config\.ru:1/, File.read(log))
    end
  end

  def test_another_version_is_refused
    connect(wire: 5) do |_, _, log|
      assert_equal 1, exit_code
      assert_match(/speaks version 5 of its wire, the library version #{Wire::VERSION}/, File.read(log))
    end
  end
end
