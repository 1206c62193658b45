# Redis: what redis-rb's users know, on one connection per VM that all tasks share. A command suspends its task only.
#
# Commands of all tasks leave together and are answered in order; WATCH, subscriptions and commands that block have
# connections of their own. `@line` is the number of the client (0 and up) or, within `watch`, of a lease (below 0).
class Redis
  class BaseError < StandardError; end
  class ProtocolError < BaseError; end
  class UnavailableCommandError < BaseError; end
  class UnknownError < BaseError; end
  class FutureNotReady < RuntimeError; end

  # Redis refused a command.
  class CommandError < BaseError; end
  class WrongTypeError < CommandError; end
  class PermissionError < CommandError; end
  class NoScriptError < CommandError; end
  class OutOfMemoryError < CommandError; end
  class ReadOnlyError < CommandError; end

  # Something happened to the connection.
  class BaseConnectionError < BaseError; end
  class CannotConnectError < BaseConnectionError; end
  class ConnectTimeoutError < CannotConnectError; end
  class ConnectionError < BaseConnectionError; end
  class TimeoutError < BaseConnectionError; end
  class CommandTimeoutError < TimeoutError; end

  # A task listens already, or not at all.
  class SubscriptionError < BaseError; end

  # Commands, each with redis-rb's types. Whoever includes it has `run(kind, *words)`; kinds are methods of Reply.
  module Commands; end

  include Commands

  attr_reader :options

  # Options, or a URL; or host, port and seconds, as other clients for mruby take them (port -1: a Unix socket).
  def initialize(options = {}, port = nil, timeout = nil)
    options = place(options, port, timeout) if options.is_a?(String)
    @options = options
    @line = Rt.call(Rt::REDIS_OPEN, options)
  end

  def self.connect(options = {})
    new(options)
  end

  # Any command: `call(:OBJECT, 'ENCODING', 'key')`. The reply as Redis gives it.
  def call(*words)
    words = words[0] if words.size == 1 && words[0].is_a?(Array)
    run(nil, *words)
  end

  def get(key)
    return run(nil, :GET, key) if @pins
    reply = Rt.wait(:redis, @line, :GET, key)
    raise reply if reply.is_a?(Exception)
    reply
  end
  alias [] get

  def []=(key, value)
    run(nil, :SET, key, value)
  end

  # Sends many commands at once: an Array of their replies, which may be exceptions (`exception: false`).
  def pipelined(exception: true)
    pipeline = Pipeline.new
    yield pipeline
    return [] if pipeline.commands.empty?
    pipeline.finish(Rt.wait!(:redis_all, line, pipeline.commands, false), exception)
  end

  # A transaction. Its commands leave when the block ends; an exception in it leaves nothing behind.
  def multi
    raise ArgumentError, 'multi needs a block: multi { |transaction| transaction.set(...) }' unless block_given?
    transaction = Pipeline.new
    yield transaction
    replies = Rt.wait!(:redis_all, line, transaction.commands, true)
    refused = replies.find { |reply| reply.is_a?(Exception) }
    # A command that was not even queued says more than EXECABORT.
    raise refused if refused
    @pins.delete(Fiber.current) if pinned
    replies[-1] && transaction.finish(replies[-1], true)
  end

  # Watches keys while the block runs: a `multi` in it does nothing, and gives nil, when one of them has changed. All
  # commands of the task go through a connection of its own meanwhile.
  def watch(*keys)
    unless block_given?
      raise ArgumentError, 'watch needs a block: watch(key) { |redis| ... redis.multi { |transaction| ... } }'
    end
    if pinned
      Rt.wait!(:redis_lease, pinned, :WATCH, *keys)
      return yield(self)
    end
    lease = Rt.call(Rt::REDIS_LEASE, @line, false)
    begin
      Rt.wait!(:redis_lease, lease, :WATCH, *keys)
      task = Fiber.current
      @pins ||= {}
      @pins[task] = lease
      result = yield self
      Rt.wait!(:redis_lease, lease, :UNWATCH) if pinned
      clean = true
      result
    ensure
      if @pins
        @pins.delete(task)
        @pins = nil if @pins.empty?
      end
      # A connection that is not given back clean is closed, which unwatches, too.
      Rt.call(Rt::REDIS_GIVE_BACK, lease, clean == true)
    end
  end

  def unwatch
    'OK'
  end

  # Another database: from now on for this client.
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

  # Closes the connection as soon as no task uses it. The next command makes a new one.
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
    reply = Rt.wait(:redis, @pins ? line : @line, *words)
    raise reply if reply.is_a?(Exception)
    kind ? Reply.as(kind, reply) : reply
  end

  # For commands that make Redis wait: on a connection of their own, so that nobody stands behind them.
  def block(kind, seconds, *words)
    reply = Rt.wait!(:redis_block, @line, seconds, *words)
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
