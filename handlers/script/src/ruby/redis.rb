# Redis with the interface of redis-rb, on one connection per VM that all tasks share. A command suspends only its own task.
#
# Commands of all tasks are sent together, and replies arrive in order; WATCH, subscriptions and commands that block have
# dedicated connections. `@line` is the number of the client (0 and up) or, within `watch`, of a lease (below 0).
class Redis
  class BaseError < StandardError; end
  class ProtocolError < BaseError; end
  class UnavailableCommandError < BaseError; end
  class UnknownError < BaseError; end
  class FutureNotReady < RuntimeError; end

  # Redis returned an error reply.
  class CommandError < BaseError; end
  class WrongTypeError < CommandError; end
  class PermissionError < CommandError; end
  class NoScriptError < CommandError; end
  class OutOfMemoryError < CommandError; end
  class ReadOnlyError < CommandError; end

  # The connection failed.
  class BaseConnectionError < BaseError; end
  class CannotConnectError < BaseConnectionError; end
  class ConnectTimeoutError < CannotConnectError; end
  class ConnectionError < BaseConnectionError; end
  class TimeoutError < BaseConnectionError; end
  class CommandTimeoutError < TimeoutError; end

  # The task has a subscription already, or none.
  class SubscriptionError < BaseError; end

  # Commands with the types of redis-rb. Classes that include it have `run(kind, *words)`; kinds are methods of Reply.
  module Commands; end

  include Commands

  attr_reader :options

  # Options, or a URL; or host, port and seconds, as in other clients for mruby (port -1: a Unix socket).
  def initialize(options = {}, port = nil, timeout = nil)
    options = place(options, port, timeout) if options.is_a?(String)
    @options = options
    @line = Rt.call(Rt::REDIS_OPEN, options)
  end

  def self.connect(options = {})
    new(options)
  end

  # Any command: `call(:OBJECT, 'ENCODING', 'key')`. Returns the reply without conversion.
  def call(*words)
    words = words[0] if words.size == 1 && words[0].is_a?(Array)
    run(nil, *words)
  end

  def get(key)
    return run(nil, :GET, key) if @pins
    reply = Rt.wait(Rt::WAIT_REDIS, @line, :GET, key)
    raise reply if reply.is_a?(Exception)
    reply
  end
  alias [] get

  def []=(key, value)
    run(nil, :SET, key, value)
  end

  # Sends several commands at once: an Array of their replies; with `exception: false` these may be exceptions.
  def pipelined(exception: true)
    pipeline = Pipeline.new
    yield pipeline
    return [] if pipeline.commands.empty?
    pipeline.finish(Rt.wait!(Rt::WAIT_REDIS_ALL, line, pipeline.commands, false), exception)
  end

  # A transaction. Its commands are sent when the block ends; if the block raises, none is.
  def multi
    raise ArgumentError, 'multi needs a block: multi { |transaction| transaction.set(...) }' unless block_given?
    transaction = Pipeline.new
    yield transaction
    replies = Rt.wait!(Rt::WAIT_REDIS_ALL, line, transaction.commands, true)
    refused = replies.find { |reply| reply.is_a?(Exception) }
    # The error of the command that was not queued is more specific than EXECABORT.
    raise refused if refused
    @pins.delete(Fiber.current) if pinned
    replies[-1] && transaction.finish(replies[-1], true)
  end

  # Watches keys while the block runs: if one of them has changed, a `multi` in it has no effect and returns nil. Meanwhile all
  # commands of the task use a dedicated connection.
  def watch(*keys)
    unless block_given?
      raise ArgumentError, 'watch needs a block: watch(key) { |redis| ... redis.multi { |transaction| ... } }'
    end
    if pinned
      Rt.wait!(Rt::WAIT_REDIS_ON_LEASE, pinned, :WATCH, *keys)
      return yield(self)
    end
    lease = Rt.call(Rt::REDIS_LEASE, @line, false)
    begin
      Rt.wait!(Rt::WAIT_REDIS_ON_LEASE, lease, :WATCH, *keys)
      task = Fiber.current
      @pins ||= {}
      @pins[task] = lease
      result = yield self
      Rt.wait!(Rt::WAIT_REDIS_ON_LEASE, lease, :UNWATCH) if pinned
      clean = true
      result
    ensure
      if @pins
        @pins.delete(task)
        @pins = nil if @pins.empty?
      end
      # A connection that is not given back clean is closed, which also unwatches.
      Rt.call(Rt::REDIS_GIVE_BACK, lease, clean == true)
    end
  end

  def unwatch
    'OK'
  end

  # Selects another database for this client from now on.
  def select(db)
    @options = @options.merge(db: db)
    @line = Rt.call(Rt::REDIS_OPEN, @options)
    'OK'
  end

  def subscribe(*channels, &block)
    listen(nil, :SUBSCRIBE, channels, &block)
  end

  def psubscribe(*patterns, &block)
    listen(nil, :PSUBSCRIBE, patterns, &block)
  end

  def subscribe_with_timeout(seconds, *channels, &block)
    listen(seconds, :SUBSCRIBE, channels, &block)
  end

  def psubscribe_with_timeout(seconds, *patterns, &block)
    listen(seconds, :PSUBSCRIBE, patterns, &block)
  end

  # Within the block of a subscription.
  def unsubscribe(*channels)
    subscription.unsubscribe(*channels)
  end

  def punsubscribe(*patterns)
    subscription.punsubscribe(*patterns)
  end

  def subscribed?
    @listening ? @listening.key?(Fiber.current) : false
  end

  def connected?
    Rt.call(Rt::REDIS_CONNECTED, @line)
  end

  # Closes the connection if it is idle. The next command connects again.
  def close
    Rt.call(Rt::REDIS_CLOSE, @line)
  end
  alias disconnect! close
  alias quit close

  def reconnect
    close
    sleep 0
    ping
    self
  end

  def connection
    { db: @options[:db] || 0, id: id }
  end

  def id
    @options[:url] || @options[:path] || "redis://#{@options[:host] || '127.0.0.1'}:#{@options[:port] || 6379}"
  end

  def inspect
    "#<Redis client for #{@options[:path] || @options[:host] || 'redis'}>"
  end

  private

  def place(text, port, timeout)
    return { url: text, timeout: timeout } if text.include?('://')
    return { path: text, timeout: timeout } if port == -1 || text.start_with?('/')
    { host: text, port: port, timeout: timeout }
  end

  def run(kind, *words)
    reply = Rt.wait(Rt::WAIT_REDIS, @pins ? line : @line, *words)
    raise reply if reply.is_a?(Exception)
    kind ? Reply.as(kind, reply) : reply
  end

  # For commands that block Redis: on a dedicated connection, so that no other command waits behind them.
  def block(kind, seconds, *words)
    reply = Rt.wait!(Rt::WAIT_REDIS_BLOCK, @line, seconds, *words)
    Reply.as(kind, reply)
  end

  def pinned
    @pins && @pins[Fiber.current]
  end

  def line
    pinned || @line
  end

  def listen(seconds, command, names)
    raise ArgumentError, 'subscribe needs a block: subscribe(channel) { |on| on.message { ... } }' unless block_given?
    task = Fiber.current
    @listening ||= {}
    raise SubscriptionError, 'this task listens already' if @listening[task]
    subscription = @listening[task] = Subscription.new(@line)
    begin
      yield subscription
      subscription.run(seconds, command, names)
    ensure
      @listening.delete(task)
      subscription.close
    end
  end

  def subscription
    found = @listening && @listening[Fiber.current]
    found || raise(SubscriptionError, 'this task listens to nothing')
  end
end

Hiredis = Redis
