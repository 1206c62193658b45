# frozen_string_literal: true

# The app of bench/fiber-soak. Each request sends its own word (`?word=...`), and each path returns it only if no other request has interfered:
# `<word> ok`.

require "digest"
require "json"
require "monitor"
require "net/http"
require "openssl"
require "socket"
require "zlib"
require "timeout"

# A pool whose objects `checkout` lends to one request at a time.
class Pool
  def initialize(size, &make)
    @queue = Queue.new
    size.times { @queue << nil }
    @make = make
  end

  def checkout
    one = @queue.pop
    begin
      one ||= @make.call
      yield one
    ensure
      @queue << one
    end
  end
end

REDIS = if ENV["SOAK_REDIS"]
          require "redis"
          Pool.new(8) { Redis.new(path: ENV["SOAK_REDIS"], timeout: 60) }
        end
DATABASE = if ENV["SOAK_DATABASE"]
             require "pg"
             Pool.new(8) { PG.connect(host: ENV["SOAK_DATABASE"], user: "redmine", dbname: "soak") }
           end

# Counters that become wrong when two requests are inside at once.
class Room
  def initialize(lock)
    @lock = lock
    @inside = 0
  end

  def visit
    @lock.synchronize do
      @inside += 1
      alone = @inside == 1
      Soak.compute(0.003)
      sleep 0.001
      alone &&= @inside == 1
      @inside -= 1
      alone
    end
  end
end

# Makes requests wait for each other in pairs; a thread hands out numbers.
class Hall
  def initialize
    @monitor = Monitor.new
    @change = @monitor.new_cond
    @count = 0
    @orders = nil
  end

  # Waits for another request, for at most half a second.
  def pair
    @monitor.synchronize do
      mine = @count += 1
      @change.broadcast
      until @count > mine
        began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        next if @change.wait(0.5)

        return Process.clock_gettime(Process::CLOCK_MONOTONIC) - began > 0.49
      end
    end
    true
  end

  # Passes a word through queues and a thread.
  def order(word)
    answer = Queue.new
    orders << [word, answer]
    answer.pop == word.reverse
  end

  private

  # Threads do not survive the fork of a worker.
  def orders
    @monitor.synchronize do
      return @orders if @worker&.alive?

      @orders = SizedQueue.new(4)
      @worker = Thread.new do
        loop do
          word, answer = @orders.pop
          answer << word.reverse
        end
      end
      @orders
    end
  end
end

# The actions of the paths. Each returns whether everything was right.
module Soak
  ROOM = Room.new(Mutex.new)
  CELL = Room.new(Monitor.new)
  HALL = Hall.new
  # Larger than the buffers of sockets.
  BLOCK = "0123456789abcdef" * 1024

  module_function

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # Computes in Ruby for that many seconds, with a known result.
  def compute(seconds)
    over = now + seconds
    sum = 0
    rounds = 0
    until now > over
      list = Array.new(50) { |n| "item #{n}" }
      sum += list.map(&:length).sum
      rounds += 1
    end
    sum == rounds * 340
  end

  # Half of the requests compute for longer than a slice: the fiber's state must stay with it.
  def own(word)
    Thread.current[:word] = word
    compute(0.015)
    sleep 0.002
    Thread.current[:word] == word
  end

  def timeout
    Timeout.timeout(0.05) { sleep 30 }
    false
  rescue Timeout::Error
    Timeout.timeout(20) { sleep 0.001 } && true
  end

  def busy_timeout
    Timeout.timeout(0.05) { loop { nil } }
    false
  rescue Timeout::Error
    true
  end

  def nested_timeout
    Timeout.timeout(10) do
      Timeout.timeout(0.03) { HALL.pair.then { sleep } }
    rescue Timeout::Error
      compute(0.02)
    end
  end

  def redis(word)
    return true unless REDIS

    REDIS.checkout do |redis|
      redis.set(word, word.reverse, ex: 60)
      sleep 0.001
      redis.get(word) == word.reverse
    end
  end

  def database(word)
    return true unless DATABASE

    DATABASE.checkout { |pg| pg.exec_params("select pg_sleep(0.02), $1::text", [word]).getvalue(0, 1) == word }
  end

  # A connection that was abandoned in the middle of a query must not be reused.
  def late_database(word)
    return true unless DATABASE

    DATABASE.checkout do |pg|
      Timeout.timeout(0.03) { pg.exec("select pg_sleep(10)") }
      false
    rescue Timeout::Error
      pg.cancel
      pg.discard_results
      pg.exec_params("select $1::text", [word]).getvalue(0, 0) == word
    end
  end

  def enumerator(word)
    list = Enumerator.new { |to| word.each_char { |char| to << char.tap { compute(0.002) } } }
    word.each_char.all? { |char| list.next == char }
  end

  def child
    IO.popen(["cat"], "r+") { |cat| cat.write("x").then { cat.close_write }.then { cat.read } } == "x" && system("true")
  end

  def socket
    ours, theirs = UNIXSocket.pair
    writer = Thread.new { theirs.write(BLOCK * 32).tap { theirs.close } }
    ours.read.bytesize == writer.value
  ensure
    ours.close
  end

  def schedule
    done = Queue.new
    3.times { |n| Fiber.schedule { sleep(0.001).then { done << n } } } if Fiber.current_scheduler
    3.times { |n| done << n } unless Fiber.current_scheduler
    Array.new(3) { done.pop }.sort == [0, 1, 2]
  end

  def backtrace
    raise KeyError, "one"
  rescue KeyError => e
    compute(0.02) && $ERROR_INFO.equal?(e) && e.message == "one"
  end

  # C extensions, each of which allocates within its calls.
  def extensions(word)
    list = { word => Array.new(20) { |n| { "n" => n, "text" => word * 3, "half" => n / 2.0 } } }
    return false unless JSON.parse(JSON.generate(list)) == list

    cipher = OpenSSL::Cipher.new("aes-256-cbc").encrypt
    cipher.key = OpenSSL::Digest::SHA256.digest(word)
    cipher.iv = iv = cipher.random_iv
    secret = cipher.update(word * 100) + cipher.final
    cipher = OpenSSL::Cipher.new("aes-256-cbc").decrypt
    cipher.key = OpenSSL::Digest::SHA256.digest(word)
    cipher.iv = iv
    sleep 0.001
    cipher.update(secret) + cipher.final == word * 100 && Zlib.inflate(Zlib.deflate(secret)) == secret
  end

  # Ends a block from inside, and from outside.
  def ensured(word)
    done = []
    found = catch(word) do
      sleep 0.002
      throw word, word.reverse
    ensure
      compute(0.012)
      done << 1
    end
    begin
      Timeout.timeout(0.02) { compute(5) }
    rescue Timeout::Error
      done << 2
    ensure
      done << 3
    end
    found == word.reverse && done == [1, 2, 3]
  end
end

# Phases of GC.stress, in which every allocation collects. A phase begins with a request and ends with it, or after a second. It affects the whole
# worker.
module Stress
  LONGEST = 1.0
  REST = 3.0
  @number = 0
  @from = 0

  module_function

  def spell(path)
    mine = begin_spell unless path == "/gone"
    yield
  ensure
    end_spell(mine) if mine
  end

  # Returns the number of a new phase; nil: not now.
  def begin_spell
    return if !ENV["SOAK_STRESS"] || GC.stress || Soak.now < @from

    GC.stress = true
    number = @number += 1
    Thread.new { sleep(LONGEST).then { end_spell(number) } }
    number
  end

  def end_spell(number)
    return unless number == @number && GC.stress

    GC.stress = false
    @from = Soak.now + REST
  end
end

require "English"

ACTS = {
  "/hello" => ->(_) { true },
  "/sleep" => ->(_) { sleep 0.05 },
  "/hog" => ->(_) { Soak.compute(0.05) },
  "/long-hog" => ->(_) { Soak.compute(0.05 + (rand * 1.95)) },
  "/own" => ->(word) { Soak.own(word) },
  "/mutex" => ->(_) { Soak::ROOM.visit },
  "/monitor" => ->(_) { Soak::CELL.visit },
  "/pair" => ->(_) { Soak::HALL.pair },
  "/queue" => ->(word) { Soak::HALL.order(word) },
  "/timeout" => ->(_) { Soak.timeout },
  "/busy-timeout" => ->(_) { Soak.busy_timeout },
  "/nested-timeout" => ->(_) { Soak.nested_timeout },
  "/redis" => ->(word) { Soak.redis(word) },
  "/database" => ->(word) { Soak.database(word) },
  "/late-database" => ->(word) { Soak.late_database(word) },
  "/enumerator" => ->(word) { Soak.enumerator(word) },
  "/child" => ->(_) { Soak.child },
  "/socket" => ->(_) { Soak.socket },
  "/schedule" => ->(_) { Soak.schedule },
  "/backtrace" => ->(_) { Soak.backtrace },
  "/extensions" => ->(word) { Soak.extensions(word) },
  "/ensured" => ->(word) { Soak.ensured(word) },
  "/http" => lambda { |word|
    uri = URI("http://#{ENV.fetch('SOAK_HOST')}/sleep?#{word}")
    Net::HTTP.start(uri.host, uri.port, read_timeout: 100) { |http| http.get(uri.request_uri) }.body == "#{word} ok"
  },
  "/gone" => ->(_) { sleep(20).tap { sleep 0.001 } }
}.freeze
TEXT = { "content-type" => "text/plain" }.freeze

run lambda { |env|
  word = env["QUERY_STRING"]
  case env["PATH_INFO"]
  when "/raise" then raise "soaked"
  when "/upload"
    digest = Digest::SHA256.new
    while (part = env["rack.input"].read(20_000))
      digest << part
      sleep 0.001 if part.bytesize == 20_000
    end
    [200, TEXT, ["#{word} #{digest.hexdigest}"]]
  when "/each"
    [200, TEXT, Enumerator.new { |body| 5.times { |n| body << "#{word} #{n}\n".tap { sleep 0.003 } } }]
  when "/stream"
    [200, TEXT, lambda { |stream|
      8.times { |n| stream.write("#{n} #{word} #{Soak::BLOCK}\n") && Soak.compute(0.002) }
      stream.close
    }]
  when "/hijack"
    [200, TEXT.merge("rack.hijack" => lambda { |io|
      3.times { |n| io.write("#{word} #{n}\n").then { sleep 0.003 } }
      io.close
    }), []]
  else
    act = ACTS[env["PATH_INFO"]] or next [404, TEXT, ["none"]]
    good = Stress.spell(env["PATH_INFO"]) { act.call(word) }
    [200, TEXT, ["#{word} #{good ? 'ok' : 'wrong'}"]]
  end
}
