# frozen_string_literal: true

# A response belongs to its request, wherever the app's code runs: bodies that yield from threads, fibers and Enumerators, blocks and handles kept
# beyond the end, clients that disconnect, workers that die. Every response contains the id of its own request, and no other.
#
#   OWNERSHIP_REQUESTS  requests of each server of the mixed test (240)
#   OWNERSHIP_CLIENTS   clients that send them (8); 100 are faster for 200,000 requests
#   OWNERSHIP_SIZE      lines in a part of a large body (1,000); with 20 a million requests take an hour
#   OWNERSHIP_GC        1: each worker turns GC.stress on for a moment, again and again, which is slow

require "support/case"
require "support/ruby_program"

class OwnershipTest < Case
  parallel!(slow: true)

  APP = <<~'RUBY'
    require "continuation"
    require "timeout"
    LOG = Queue.new
    SIZE = Integer(ENV.fetch("OWNERSHIP_SIZE"))
    # Objects that earlier requests have left behind, and the result of using them.
    KEPT = Queue.new
    def use(kept, what)
      what.times { kept.size.zero? ? break : try(*kept.pop) }
    end
    def try(name, action)
      action.call
      LOG << "#{name}: no error"
    rescue IOError
      nil
    rescue Exception => error
      LOG << "#{name}: #{error.class}: #{error.message}"
    end
    class Body
      def initialize(&block) = @block = block
      def each(&write) = @block.call(write)
    end
    in_thread = ->(&block) { Thread.new(&block).tap { |thread| thread.report_on_exception = false }.join }
    # On a fiber of its own where there is a scheduler.
    in_fiber = lambda do |&block|
      next in_thread.call(&block) unless Fiber.scheduler
      done = Queue.new
      Fiber.schedule { block.call; done << nil rescue done << $! }
      done.pop&.then { |error| raise error }
    end
    run lambda { |env|
      next [200, { "content-type" => "text/plain" }, [Array.new(LOG.size) { LOG.pop }.join("\n")]] if env["PATH_INFO"] == "/log"
      id = env["HTTP_X_ID"]
      line = "#{id}\n"
      use(KEPT, 3)
      # For moments only: a whole request under stress takes longer than any time-out.
      $stress ||= Thread.new { loop { GC.stress = true; sleep 0.02; GC.stress = false; sleep 0.1 } } if ENV["OWNERSHIP_GC"] == "1"
      fields = { "content-type" => "text/plain", "x-id" => id, "set-cookie" => "session=#{id}" }
      body =
        case env["PATH_INFO"]
        when "/plain" then [line]
        when "/panic" then Firebrick::Native.reap("no number")
        when "/panic-late" then Body.new { |write| write.call(line); Firebrick::Native.reap("no number") }
        when "/input" then KEPT << ["input", -> { env["rack.input"].read(1) }]; [env["rack.input"].read]
        when "/thread" then Body.new { |write| in_thread.call { 20.times { write.call(line) } } }
        when "/unready" then Body.new { |write| in_thread.call { 5.times { write.call(line); sleep 0.002 } } }
        when "/two" then Body.new { |write| Array.new(2) { Thread.new { 10.times { write.call(line) } } }.each(&:join) }
        when "/fiber" then Body.new { |write| in_fiber.call { 20.times { write.call(line); sleep 0.001 } } }
        when "/own-fiber" then Body.new { |write| Fiber.new { 5.times { write.call(line) } }.resume }
        when "/enumerator" then Enumerator.new { |y| 20.times { y << line } }
        when "/next" then Body.new { |write| e = Enumerator.new { |y| 5.times { sleep 0.001; y << line } }; 5.times { write.call(e.next) } }
        when "/inner" then Body.new { |write| Enumerator.new { |y| 5.times { write.call(line); y << 1 } }.then { |e| 5.times { e.next } } }
        when "/large" then Body.new { |write| in_thread.call { 200.times { write.call(line * SIZE) } } }
        when "/large-fiber" then Body.new { |write| in_fiber.call { 200.times { write.call(line * SIZE) } } }
        when "/huge-part" then Body.new { |write| in_thread.call { 3.times { write.call(line * SIZE * 100) } } }
        when "/sized" then fields["content-length"] = (line.bytesize * 20).to_s; Body.new { |write| in_thread.call { 20.times { write.call(line) } } }
        when "/stray" then Body.new { |write| KEPT << ["block", -> { write.call(line * 2) }]; write.call(line) }
        when "/stray-large" then Body.new { |write| KEPT << ["large block", -> { write.call(line * SIZE * 50) }]; write.call(line) }
        when "/behind"
          Body.new { |write| Thread.new { 1000.times { write.call(line); sleep 0.001 } rescue $!.is_a?(IOError) || LOG << "behind: #{$!.inspect}" }; write.call(line) }
        when "/kept"
          hijack, timeout, hints = env.values_at("rack.hijack", "firebrick.timeout", "rack.early_hints")
          KEPT << ["hijack", -> { hijack.call.write("HTTP/1.1 200 OK\r\n\r\n#{line}") }] << ["timeout", -> { timeout.extend(1) }]
          KEPT << ["hints", -> { hints.call("link" => id) }]
          [line]
        when "/stream" then ->(stream) { in_thread.call { 20.times { stream.write(line) }; stream.close } }
        when "/hub" then ->(stream) { Thread.new { 20.times { stream.write(line); sleep 0.001 }; stream.close } }
        when "/hijack"
          in_thread.call do
            io = env["rack.hijack"].call
            io.write("HTTP/1.1 200 OK\r\nX-Id: #{id}\r\nConnection: close\r\n\r\n#{line * 3}")
            io.close
          end
          [line]
        when "/timeout" then Body.new { |write| begin; Timeout.timeout(0.002) { sleep 5 }; rescue Timeout::Error; end; in_thread.call { write.call(line) } }
        when "/raises" then Body.new { |write| in_thread.call { write.call(line) }; raise "on purpose" }
        when "/raises-first" then raise "on purpose"
        when "/throws-first" then throw :stray, id
        when "/yields-first" then Fiber.yield([200, fields, [line]])
        when "/throws" then Body.new { |write| in_thread.call { write.call(line) }; throw :stray, id }
        when "/yields" then Body.new { |write| write.call(line); Fiber.yield(line) }
        when "/leaves" then Body.new { |write| callcc { |leave| 5.times { write.call(line); sleep 0.001 }; leave.call; write.call("never") } }
        when "/breaks" then Body.new { |write| [1, 2].each { |n| write.call(line); sleep 0.001; break if n == 2 } }
        when "/raises-stream" then ->(stream) { stream.write(line); raise "on purpose" }
        when "/killed" then Body.new { |write| Thread.new { write.call(line); Thread.current.kill }.join; write.call(line) }
        when "/exception" then Body.new { |write| t = Thread.new { 100.times { write.call(line); sleep 0.001 } }; t.report_on_exception = false; sleep 0.01; t.raise("on purpose"); t.join rescue nil }
        end
      [200, fields, body]
    }
  RUBY

  KINDS = APP.scan(%r{when "/([\w-]+)"}).flatten.grep_v(/log|panic/).freeze
  # Kinds whose responses are error pages, and those whose responses are cut off.
  ERRORS = %w[raises-first throws-first yields-first].freeze
  FAIL = [*ERRORS, "raises", "raises-stream", "throws", "yields"].freeze
  # Complete ids: a chunk may end in the middle of one.
  IDS = /id-\d+\./

  SHAPES = {
    "threads" => { threads: "3:3", settings: {} },
    "one thread" => { threads: "1:1", settings: {} },
    "fibers" => { threads: "1:1", settings: { fibers: 20 } },
    "threads with fibers" => { threads: "2:2", settings: { fibers: 20 } },
    "pools" => { threads: "1:1", settings: { pools: {
      threads: { paths: KINDS.each_slice(3).map { |some| "/#{some[0]}" }, threads: 3 },
      fibers: { paths: KINDS.each_slice(3).filter_map { |some| some[1] && "/#{some[1]}" }, fibers: 20 }
    } } },
    "fibers for some paths" => { threads: "2:2", settings: { fibers: 20, fiber_paths: ["/thread", "/fiber", "/large", "/stray", "/kept", "/next", "/behind", "/plain"] } }
  }.freeze

  def serving(shape, workers: 1, **more)
    options = SHAPES.fetch(shape)
    start(app: APP, workers: workers, **options, settings: options[:settings].merge(more), args: ["--early-hints"],
          env: { "OWNERSHIP_GC" => ENV.fetch("OWNERSHIP_GC", "0"), "OWNERSHIP_SIZE" => ENV.fetch("OWNERSHIP_SIZE", "1000") })
  end

  def head(kind, id)
    body = kind == "input" ? "Content-Length: #{id.bytesize}\r\n\r\n#{id}" : "\r\n"
    "#{kind == 'input' ? 'POST' : 'GET'} /#{kind} HTTP/1.1\r\nHost: example.test\r\nX-Id: #{id}\r\nConnection: close\r\n#{body}"
  end

  # Returns all received bytes, however the exchange has ended.
  def exchange(own, kind, id, leaves: false, slow: false)
    connection = Connection.new(own.address, deadline: 60, **(slow ? { receive_buffer: 32_768 } : {}))
    connection.write(head(kind, id))
    return connection.read_some.tap { connection.reset! } if leaves

    sleep 0.3 if slow
    connection.read_to_end
  rescue TruncatedResponse, SystemCallError
    connection ? connection.buffered.dup : ""
  ensure
    connection&.close
  end

  def assert_own(kind, id, bytes)
    others = bytes.scan(IDS).uniq - [id]
    assert_empty others, "/#{kind} of #{id}:\n#{bytes.byteslice(0, 2000)}"
  end

  def whole?(bytes)
    bytes.end_with?("0\r\n\r\n") || bytes[/^Content-Length: (\d+)/i, 1]&.then { |length| bytes.split("\r\n\r\n", 2).last.to_s.bytesize == length.to_i }
  end

  def assert_nothing_went_wrong(own)
    lines = get("/log", to: own).body
    assert_empty lines
    refute_match(/panicked|internal error|has a loop|\[BUG\]/, own.stderr)
  end

  # Sends requests of all kinds by several clients, some of which leave or read slowly; the block is called in the middle.
  def mix(own, kinds)
    count = Integer(ENV.fetch("OWNERSHIP_REQUESTS", "240"))
    next_number = Queue.new
    count.times { |number| next_number << number }
    wrong = Queue.new
    clients = Integer(ENV.fetch("OWNERSHIP_CLIENTS", "8"))
    # A minimum rate for any machine: a few requests per second and client.
    patience = 300 + (count / clients)
    clients = Array.new(clients) do |client|
      Thread.new do
        random = Random.new(client)
        until next_number.empty?
          number = next_number.pop(true)
          kind = kinds[number % kinds.length]
          id = "id-#{number}."
          bytes = exchange(own, kind, id, leaves: random.rand < 0.15, slow: random.rand < 0.05)
          strange = bytes.scan(IDS).uniq - [id]
          wrong << "/#{kind} of #{id} has #{strange}" unless strange.empty?
          wrong << "/#{kind} of #{id} looks complete" if FAIL.include?(kind) && bytes.end_with?("0\r\n\r\n") && bytes.start_with?("HTTP/1.1 200")
        end
      rescue ThreadError
        nil
      end
    end
    wait_until("half of the requests", within: patience) { next_number.length < count / 2 }
    yield
    clients.each { |client| assert client.join(patience), "a request hangs" }
    assert_empty Array.new(wrong.length) { wrong.pop }
    refute_match(/panicked|internal error|has a loop|\[BUG\]/, own.stderr)
  end

  SHAPES.each_key do |shape|
    it "gives each kind of body its own response, with #{shape}" do
      firebrick_only
      skip "fibers are CRuby's" if shape.include?("fibers") && !Server.cruby?
      own = serving(shape)
      pid = own.stats["workers"].map { |worker| worker["pid"] }
      KINDS.each_with_index do |kind, number|
        id = "id-#{number}."
        bytes = exchange(own, kind, id, slow: kind.start_with?("large"))
        assert_own(kind, id, bytes)
        assert_includes bytes, id, "/#{kind}" unless ERRORS.include?(kind)
        FAIL.include?(kind) ? refute(bytes.end_with?("0\r\n\r\n") && bytes.start_with?("HTTP/1.1 200"), "/#{kind} looks complete:\n#{bytes}") : nil
        next if FAIL.include?(kind) || kind == "hijack"

        assert whole?(bytes), "/#{kind}: #{bytes.byteslice(0, 300)}… (#{bytes.bytesize} bytes)"
      end
      # Blocks and handles kept by earlier requests are used now.
      12.times { |n| assert_own("plain", "id-9#{n}.", exchange(own, "plain", "id-9#{n}.")) }
      assert_nothing_went_wrong(own)
      assert_equal pid, own.stats["workers"].map { |worker| worker["pid"] }, "no worker has been replaced"
    end

    it "keeps responses apart when all kinds are mixed, clients leave and a worker is killed, with #{shape}" do
      firebrick_only
      skip "fibers are CRuby's" if shape.include?("fibers") && !Server.cruby?
      own = serving(shape, workers: 2)
      mix(own, KINDS) { own.stats["workers"].group_by { |worker| worker["pool"] }.each_value { |all| Process.kill("KILL", all.first["pid"]) } }
    end
  end

  HANDLERS = <<~'RUBY'
    class Body
      def initialize(&block) = @block = block
      def each(&write) = @block.call(write)
    end
    $kept = []
    lambda do |env|
      id = env["HTTP_X_ID"]
      line = "#{id}\n"
      fields = { "content-type" => "text/plain", "x-id" => id, "set-cookie" => "session=#{id}" }
      $kept.shift if $kept.size > 3
      body =
        case env["PATH_INFO"]
        when "/plain" then [line]
        when "/sleep" then sleep 0.002; [line]
        when "/input" then [env["rack.input"].read]
        when "/each" then Body.new { |write| 10.times { write.call(line); sleep 0.001 } }
        when "/large" then Body.new { |write| 20.times { write.call(line * 1000) } }
        when "/task" then Body.new { |write| c = Channel.new; task { 10.times { c.push(line); sleep 0.001 }; c.push(nil) }; while (part = c.shift) do write.call(part) end }
        when "/inside-task" then Body.new { |write| task { 5.times { write.call(line); sleep 0.001 } }.join }
        when "/next-of" then Body.new { |write| e = [line, line].each; 2.times { write.call(e.next); sleep 0.001 } }
        when "/own-fiber" then Body.new { |write| f = Fiber.new { 3.times { Fiber.yield(line) }; nil }; while (part = f.resume) do write.call(part) end }
        when "/resumes-kept" then $kept << Fiber.new { Fiber.yield(line); line }; $kept.first.resume; [line]
        when "/channel" then $kept << (c = Channel.new); task { sleep 0.001; c.push(line) }; [c.shift]
        when "/app" then next H2O.next.call(env)
        when "/app-body" then [H2O.next.call(env)[2].join]
        when "/passes" then next [399, { "x-own" => id }, []]
        when "/raises" then Body.new { |write| write.call(line); sleep 0.001; raise "on purpose" }
        when "/raises-first" then raise "on purpose"
        when "/throws-first" then throw :stray, id
        when "/yields-first" then Fiber.yield([200, fields, [line]])
        when "/yields-later" then sleep 0.002; Fiber.yield(true)
        when "/yields" then Body.new { |write| write.call(line); sleep 0.001; Fiber.yield(true) }
        when "/transfers" then Fiber.new { [200, fields, [line]] }.transfer
        when "/ensures" then begin; raise "on purpose"; ensure; Fiber.yield(true); end
        when "/leaves-rest" then task { sleep 0.05; line.size }; [line]
        end
      [200, fields, body]
    end
  RUBY
  HANDLED = HANDLERS.scan(%r{when "/([\w-]+)"}).flatten.freeze

  it "keeps responses of handlers on mruby apart, whatever leaves their Fibers, when clients leave and workers of the app behind are killed" do
    mruby_only
    own = start(app: %(run ->(env) { [200, { "content-type" => "text/plain" }, ["\#{env["HTTP_X_ID"]}\\n"]] }\n), files: { "own.rb" => HANDLERS }, workers: 2,
                settings: %([routes]\n"/" = "own.rb"\n))
    HANDLED.each_with_index do |kind, number|
      id = "id-#{number}."
      bytes = exchange(own, kind, id)
      assert_own(kind, id, bytes)
      assert_equal kind.match?(/yields|transfers|ensures|raises|throws|inside-task/), !(bytes.start_with?("HTTP/1.1 200") && whole?(bytes)), "/#{kind}: #{bytes}"
    end
    mix(own, HANDLED) { Process.kill("KILL", own.stats["workers"].first["pid"]) }
  end

  it "fails the request, and nothing else, when its native part panics" do
    firebrick_only
    skip "the native part is CRuby's" if !Server.cruby? || ENV["FIREBRICK_PURE"] == "1"
    own = serving("fibers")
    pid = own.stats["workers"].map { |worker| worker["pid"] }
    assert_equal 500, get("/panic", to: own, headers: { "X-Id" => "id-1." }).status
    bytes = exchange(own, "panic-late", "id-2.")
    assert bytes.include?("id-2.") && !bytes.end_with?("0\r\n\r\n"), bytes
    assert_equal "id-3.\n", get("/plain", to: own, headers: { "X-Id" => "id-3." }).body
    assert_equal pid, (own.stats["workers"].map { |worker| worker["pid"] })
  end
end
