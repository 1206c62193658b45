# frozen_string_literal: true

require "socket"
require "tempfile"
require "tmpdir"
require "timeout"
require_relative "wire"

# Plays the front: starts a template, orders workers, talks to them. One instance per test.
class FakeFront
  LIB = ENV.fetch("FIREBRICK_LIB", File.expand_path("../../lib", __dir__))
  RUBY = ENV.fetch("RUBY", RbConfig.ruby).split.freeze

  class Gone < StandardError; end

  # Seconds for the end of a template, which kills its workers after one second. The rest allows for busy machines.
  ENDS_WITHIN = 60

  # A worker as the front sees it.
  class Worker
    attr_accessor :pid, :ended
    # Whether returned requests are sent again, as the front does when there is no other worker.
    attr_accessor :resends
    attr_reader :index, :frames
    # The resources that a request has used, by its id: microseconds of GC, allocations, queries, their microseconds; nil where it is not known.
    attr_reader :used

    def initialize(front, index, links)
      @front = front
      @index = index
      @links = links
      @buffers = Array.new(links.length) { "".b }
      @fds = Array.new(links.length) { [] }
      @frames = []
      @names = {}
      @used = {}
      @sent = Array.new(links.length) { [] }
      @resends = true
      @next_id = 0
    end

    def send_frame(bytes, link: 0, file: nil)
      remember(bytes, link, file)
      socket = @links[link]
      return socket.write(bytes) unless file

      sent = socket.sendmsg(bytes, 0, nil, Socket::AncillaryData.unix_rights(file))
      socket.write(bytes.byteslice(sent..))
    end

    # Sends a request and returns its id.
    def start(link: 0, file: nil, **request)
      @next_id += 1
      send_frame(Wire.request(@next_id, **request), link: link, file: file)
      @next_id
    end

    # Returns the next frame, or the next one that the block accepts; others are kept.
    def take(timeout: 10)
      deadline = now + timeout
      loop do
        at = @frames.index { |frame| !block_given? || yield(frame) }
        return @frames.delete_at(at) if at

        receive(deadline)
      end
    end

    # Returns the name of the frame's route; nil if it has none.
    def route(frame)
      @names.fetch([frame.link, frame.route]) unless frame.route.zero?
    end

    def take_for(id, kind = nil, timeout: 10)
      take(timeout: timeout) { |frame| frame.id == id && (kind.nil? || frame.kind == kind) }
    end

    # Replies to an offer, with or without a socket.
    def lend(id, socket = nil)
      send_frame(Wire.frame(:lend, id, flags: socket ? 0x80 : 0), file: socket)
    end

    # Returns the whole response: status, fields, body, whether it failed. Gives the window back and declines offers.
    def response(id, timeout: 10)
      head = take_for(id, :response, timeout: timeout)
      status, fields, body = head.head
      return [status, fields, body, false] if head.end?

      loop do
        frame = take_for(id, timeout: timeout)
        case frame.kind
        when :body
          body << frame.payload
          send_frame(Wire.frame(:window, id, [frame.payload.bytesize].pack("V")), link: frame.link)
        when :file then body << file_bytes(frame)
        when :offer then send_frame(Wire.frame(:lend, id), link: frame.link)
        when :end then return [status, fields, body, frame.end?]
        end
      end
    end

    def get(target = "/", timeout: 10, link: 0, **request)
      response(start(target: target, link: link, **request), timeout: timeout)
    end

    def file_bytes(frame)
      offset, length = frame.payload.unpack("Q<Q<")
      IO.pread(frame.fd.fileno, length, offset)
    rescue NoMethodError
      frame.fd.pread(length, offset)
    end

    def drain
      send_frame(Wire.frame(:drain))
    end

    # Tells the worker to leave a template behind when it has finished. Returns the socket of that template.
    def promote
      ours, theirs = UNIXSocket.pair
      send_frame(Wire.frame(:promote, flags: 0x80), file: theirs)
      theirs.close
      ours
    end

    def close
      @links.each { |link| link.close unless link.closed? }
    end

    # Returns true if nothing arrives for that time.
    def quiet?(seconds)
      receive(now + seconds)
      false
    rescue Timeout::Error
      true
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Records the requests of each link, in order.
    def remember(bytes, link, file)
      at = 0
      while bytes.bytesize >= at + 12
        length, kind = bytes.byteslice(at, 5).unpack("VC")
        @sent[link] << [bytes.byteslice(at, 12 + length), file] if kind == Wire::KINDS[:request]
        at += 12 + length
      end
    end

    def resend(frame)
      again = @sent[frame.link].drop(frame.length)
      send_frame(Wire.frame(:resume), link: frame.link)
      again.each { |bytes, file| send_frame(bytes, link: frame.link, file: file) }
    end

    def receive(deadline)
      left = deadline - now
      ready, = left.positive? && IO.select(@links, nil, nil, left)
      raise Timeout::Error, "no frame from worker #{@index}" unless ready

      # Frames that a worker sent before its end may be on another link than the one whose end is seen first.
      ended = ready.map { |socket| @links.index(socket) }.reject { |link| read(@links[link], link) }
      raise Gone, "worker #{@index} closed link #{ended.join(', ')}" if ended.size == ready.size
    end

    # Returns false when the worker has closed the link.
    def read(socket, link)
      bytes, _, _, *control = socket.recvmsg(1 << 20, 0, 256, scm_rights: true)
      return false if bytes.nil? || bytes.empty?

      control.each { |message| @fds[link].concat(message.unix_rights) if message.unix_rights }
      @buffers[link] << bytes
      cut(link)
      true
    rescue Errno::ECONNRESET
      false
    end

    def note(frame)
      return @names[[frame.link, frame.route]] = frame.payload if frame.kind == :route

      @used[frame.id] = frame.payload.unpack("V*").map { |value| value unless value == 0xffffffff }
    end

    def cut(link)
      buffer = @buffers[link]
      while buffer.bytesize >= 12
        length, kind, flags, route, id = buffer.unpack("VCCvV")
        return if buffer.bytesize < 12 + length

        payload = buffer.slice!(0, 12 + length).byteslice(12..)
        fd = flags.anybits?(0x80) ? @fds[link].shift : nil
        frame = Wire::Frame.new(Wire::KINDS.key(kind), flags, id, payload, fd, link, route)
        next note(frame) if %i[route used].include?(frame.kind)
        next @frames << frame unless @resends && %i[returned resumed].include?(frame.kind)

        resend(frame) if frame.kind == :returned
      end
    end
  end

  # The most threads of a worker.
  SLOT_THREADS = 16

  # The process id of the template that was followed last.
  attr_reader :heir
  attr_reader :pid, :booted, :stderr, :control, :dir, :slot_len

  def initialize(rackup, threads: [1, 1], links: 1, env: {}, environment: "production", files: {}, **settings)
    @dir = Dir.mktmpdir("firebrick-worker-test")
    files.merge("config.ru" => rackup).each { |name, text| File.write(File.join(@dir, name), text) }
    @links = links
    @threads = threads
    @environment = environment
    @settings = settings
    @workers = []
    @messages = []
    @bytes = "".b
    spawn_template(env)
  end

  def self.open(rackup, **options)
    front = new(rackup, **options)
    front.boot
    yield front, (front.fork_worker if options.fetch(:workers, 1).positive?)
  ensure
    front&.close
  end

  def boot
    @slot_len = ((64 + (16 * SLOT_THREADS) + (16 * @links) + 63) / 64 * 64) + Wire::RECORDER
    @scoreboard = Tempfile.create("scoreboard", @dir)
    @scoreboard.truncate(@slot_len * 16)
    defaults = {
      wire: Wire::VERSION, app: File.join(@dir, "config.ru"), environment: @environment, threads_min: @threads.first,
      threads_max: @threads.last, links: @links, slot_len: @slot_len, slots: 16, compact: 1, early_hints: 1,
      temp_dir: @dir, tag: "test", max_head: 65_536,
      response_memory: 1 << 20, response_spool: 256 << 20, fibers: ENV.fetch("TEST_FIBERS", "0"),
      slice_us: ENV.fetch("TEST_SLICE_US", "0"), blocking_us: 0
    }
    pairs = defaults.merge(@settings.except(:workers)).flat_map { |key, value| Array(value).flat_map { |v| [key, v] } }
    tell("boot", *pairs, fds: [@scoreboard])
    verb, *facts = hear("booted", "failed", timeout: 30)
    raise Gone, facts.join if verb == "failed"

    @booted = Hash[*facts]
  end

  def tell(*words, fds: [])
    text = words.join("\0").b
    bytes = [text.bytesize].pack("V") << text
    control = fds.empty? ? [] : [Socket::AncillaryData.unix_rights(*fds)]
    @control.sendmsg(bytes, 0, nil, *control)
  end

  # Returns the next message with one of these verbs.
  def hear(*verbs, timeout: 10)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + timeout
    loop do
      at = @messages.index { |message| verbs.include?(message.first) }
      return @messages.delete_at(at) if at

      left = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)
      raise Timeout::Error, "no #{verbs.join(' or ')}\n#{log}" unless left.positive? && @control.wait_readable(left)

      @bytes << @control.recv(1 << 16).tap { |bytes| raise Gone, "template gone\n#{log}" if bytes.empty? }
      cut
    end
  end

  # Talks to this template from now on, when it is ready.
  def follow(control)
    @control.close
    @control = control
    @bytes.clear
    @messages.clear
    @heir = hear("pid").last.to_i
    verb, *facts = hear("booted", "failed")
    raise Gone, facts.join if verb == "failed"

    @booted = Hash[*facts]
  end

  # The worker has the threads and fibers of the settings, or those given.
  def fork_worker(index = @workers.length, ready: true, threads: @threads, fibers: @settings.fetch(:fibers, ENV.fetch("TEST_FIBERS", "0")))
    ours, theirs = Array.new(@links) { UNIXSocket.pair }.transpose
    tell("fork", index, *threads, fibers, "default", fds: theirs)
    theirs.each(&:close)
    worker = Worker.new(self, index, ours)
    worker.pid = hear("forked").last.to_i
    worker.take { |frame| frame.kind == :ready } if ready
    @workers << worker
    worker
  end

  def slot(index)
    bytes = File.binread(@scoreboard.path, @slot_len, @slot_len * index)
    { requests: bytes.unpack1("Q<"), failures: bytes.unpack1("Q<", offset: 8), threads: bytes.unpack1("Q<", offset: 16),
      blocking_calls: bytes.unpack1("Q<", offset: 32), blocked_us: bytes.unpack1("Q<", offset: 40),
      serving: bytes.byteslice(64 + (16 * @links), 16 * @threads.last).unpack("Q<*").each_slice(2).map(&:first),
      now: bytes.unpack1("Q<", offset: 24), taken: bytes.byteslice(64, 16 * @links).unpack("Q<*").each_slice(2).map(&:first) }
  end

  # Withdraws the first +count+ requests of a link that have not been started.
  def withdraw(index, count, link: 0)
    IO.binwrite(@scoreboard.path, [count].pack("Q<"), (@slot_len * index) + 64 + (16 * link) + 8)
  end

  # Returns how a worker ended: "exit" or "signal", and the number.
  def ended(worker, timeout: 10)
    loop do
      _, pid, how, code, peak = hear("exited", timeout: timeout)
      return [how, code.to_i, peak.to_i] if pid.to_i == worker.pid
    end
  end

  def log
    File.read(@stderr.path)
  end

  def close
    @control.close unless @control.closed?
    @workers.each(&:close)
    Timeout.timeout(ENDS_WITHIN) { Process.wait(@pid) } if @pid
  rescue Timeout::Error
    doing = family(@pid).map { |pid| doing(pid) }
    Process.kill("KILL", @pid)
    Process.wait(@pid)
    raise Timeout::Error, "the template did not end in #{ENDS_WITHIN} s:\n#{[*doing, log].join("\n")}"
  ensure
    FileUtils.remove_entry(@dir)
  end

  # Returns how the template has ended.
  def wait
    _, status = Process.wait2(@pid)
    @pid = nil
    status
  end

  private

  # A process and its children.
  def family(pid)
    [pid, *Dir["/proc/[0-9]*/stat"].filter_map { |file| file[/\d+/].to_i if status_of(file)&.match?(/\) \S #{pid} /) }]
  end

  # Returns its name and state, and what each of its threads waits for, as reported by the kernel.
  def doing(pid)
    threads = Dir["/proc/#{pid}/task/*"].map { |task| %w[wchan syscall].map { |name| status_of("#{task}/#{name}").to_s.strip }.join(" ") }
    [status_of("/proc/#{pid}/stat").to_s[/\A\d+ .*\) \S/], *threads].join("; ")
  end

  def status_of(file)
    File.read(file)
  rescue SystemCallError
    nil
  end

  def spawn_template(env)
    @control, theirs = UNIXSocket.pair
    @stderr = File.open(File.join(@dir, "stderr"), "a")
    env = { "FIREBRICK_CONTROL_FD" => theirs.fileno.to_s, "FIREBRICK_FRONT_PID" => Process.pid.to_s, "MALLOC_ARENA_MAX" => "2", "RACK_ENV" => nil }.merge(env)
    command = [*RUBY, "-I", LIB, "-rfirebrick/template", "-e", "Firebrick::Template.run"]
    @pid = spawn(env, *command, chdir: @dir, err: @stderr, theirs => theirs)
    theirs.close
  end

  def cut
    while (length = @bytes.unpack1("V")) && @bytes.bytesize >= length + 4
      @messages << @bytes.slice!(0, length + 4).byteslice(4..).force_encoding("UTF-8").split("\0", -1)
    end
  end
end
