# H2O::Redis: each command is sent at once and returns a promise; `join` waits for its reply.
module H2O
  class Redis
    class BaseError < RuntimeError; end
    class ConnectionError < BaseError; end
    class TimeoutError < ConnectionError; end
    class ConnectTimeoutError < TimeoutError; end
    class CommandTimeoutError < TimeoutError; end
    class ProtocolError < BaseError; end
    class UnknownError < BaseError; end
    class UnavailableCommandError < BaseError; end

    # Redis returned an error reply.
    class CommandError < BaseError
      attr_reader :command

      def initialize(message, command = nil)
        @command = command
        super(command ? "#{message} (command: #{command.words.join(' ')})" : message)
      end
    end

    ERRORS = {
      ::Redis::ConnectTimeoutError => ConnectTimeoutError,
      ::Redis::CommandTimeoutError => CommandTimeoutError,
      ::Redis::BaseConnectionError => ConnectionError,
      ::Redis::ProtocolError => ProtocolError,
      ::Redis::UnavailableCommandError => UnavailableCommandError,
      ::Redis::BaseError => UnknownError
    }.freeze

    # H2O's exception for one of redis-rb.
    def self.error(error, command)
      return CommandError.new(error.message, command) if error.is_a?(::Redis::CommandError)
      ERRORS.each { |ours, theirs| return theirs.new(error.message) if error.is_a?(ours) }
      error
    end

    # A command that has been sent.
    class Command
      attr_reader :words
      alias args words

      def initialize(words)
        @words = words
        @number = yield
      rescue StandardError => e
        @reply = Redis.error(e, self)
        @here = true
      end

      # Its reply; an error reply is raised.
      def join
        wait
        raise @reply if @reply.is_a?(Exception)
        @reply
      end

      private

      # Several tasks may join; one fetches the reply, the others wait for it.
      def wait
        until @here
          if @asked
            ticket = Rt.call(Rt::TICKET)
            @asked << ticket
            Rt.wait!(Rt::WAIT_PARK, ticket)
          else
            ask
          end
        end
      end

      def ask
        @asked = []
        reply = Rt.wait(Rt::WAIT_REDIS_JOIN, @number)
        # A cancelled task leaves the reply to the others.
        raise reply if reply.is_a?(Rt::Cancelled)
        take(reply)
        @here = true
      ensure
        waiting = @asked
        @asked = nil
        waiting.each { |ticket| Rt.call(Rt::WAKE, ticket) }
      end

      def take(reply)
        @reply = reply.is_a?(Exception) ? Redis.error(reply, self) : reply
      end
    end

    # EXEC: the replies to all commands of a transaction.
    class Transaction < Command
      private

      def take(reply)
        return super unless reply.is_a?(Array)
        error = reply.find { |one| one.is_a?(Exception) }
        last = reply[-1]
        error ||= last.find { |one| one.is_a?(Exception) } if last.is_a?(Array)
        return super(error) if error
        return @reply = CommandError.new('the transaction was aborted: a watched key has changed', self) if last.nil?
        @reply = last
      end
    end

    # A command in a transaction: Redis replies QUEUED.
    class Queued < Command
      def initialize(words)
        @words = words
        @reply = 'QUEUED'
        @here = true
      end
    end

    attr_reader :host, :port, :db, :password, :connect_timeout, :command_timeout

    def initialize(options = {})
      @options = { host: '127.0.0.1', port: 6379, db: 0 }.merge(options)
      @options.delete(:host) && @options.delete(:port) if options[:url] || options[:path]
      @options.delete(:db) if options[:url] && !options[:db]
      @host, @port, @db, @password = @options[:host], @options[:port], @options[:db], @options[:password]
      @connect_timeout = options[:connect_timeout] || options[:timeout] || 5
      @command_timeout = options[:command_timeout] || options[:timeout] || 5
      @line = Rt.call(Rt::REDIS_OPEN, @options)
      @transactions = {}
      @pins = {}
      @channels = []
    end

    def db=(db)
      @db = @options[:db] = db
      @line = Rt.call(Rt::REDIS_OPEN, @options)
    end

    # Defined again, because Kernel has a method of this name.
    def eval(*words)
      call(:EVAL, *words)
    end

    def select(db)
      self.db = db
      call(:PING)
    end

    def connect
      call(:PING)
    end

    def disconnect
      @channels.each(&:close)
      @channels.clear
      Rt.call(Rt::REDIS_CLOSE, @line)
    end
    alias quit disconnect

    def disconnected?
      !Rt.call(Rt::REDIS_CONNECTED, @line)
    end

    # Any command: `call(:SET, 'key', 'value')`.
    def call(*words)
      waiting = @transactions[Fiber.current] unless @transactions.empty?
      if waiting
        waiting << words
        return Queued.new(words)
      end
      Command.new(words) { Rt.call(Rt::REDIS_SEND, line, *words) }
    end

    def method_missing(name, *words, &block)
      command = Rt.call(Rt::REDIS_NAMED, name)
      return super unless command
      # Found directly the next time.
      self.class.define_method(name) { |*more| call(*command, *more) }
      call(*command, *words)
    end

    def respond_to_missing?(name, all = false)
      Rt.call(Rt::REDIS_NAMED, name) ? true : false
    end

    # The commands of the block are one transaction; its promise returns all replies. Without a block, until `exec`.
    def multi
      task = Fiber.current
      @transactions[task] = []
      return Queued.new([:MULTI]) unless block_given?
      begin
        yield self
        exec
      ensure
        @transactions.delete(task)
      end
    end

    def exec
      commands = @transactions.delete(Fiber.current)
      Transaction.new([:EXEC]) do
        raise ::Redis::CommandError, 'ERR EXEC without MULTI' unless commands
        Rt.call(Rt::REDIS_SEND_ALL, line, commands, true)
      end
    end

    def discard
      @transactions.delete(Fiber.current)
      Queued.new([:DISCARD])
    end

    # If one of the keys changes, `join` of the `multi` in the block raises.
    def watch(*keys)
      raise UnavailableCommandError, 'watch needs a block: watch(key) { redis.multi { ... }.join }' unless block_given?
      task = Fiber.current
      lease = Rt.call(Rt::REDIS_LEASE, @line, false)
      begin
        Rt.wait!(Rt::WAIT_REDIS_ON_LEASE, lease, :WATCH, *keys)
        @pins[task] = lease
        result = yield self
        # Its reply arrives after those of all commands of the block.
        Rt.wait!(Rt::WAIT_REDIS_ON_LEASE, lease, :UNWATCH)
        clean = true
        result
      rescue ::Redis::BaseError => e
        raise Redis.error(e, nil)
      ensure
        @pins.delete(task)
        Rt.call(Rt::REDIS_GIVE_BACK, lease, clean == true)
      end
    end

    def unwatch
      Queued.new([:UNWATCH])
    end

    def monitor
      raise UnavailableCommandError, 'MONITOR cannot be used in handlers; use redis-cli monitor'
    end

    # `join` returns a Channel as soon as Redis has confirmed the subscription.
    def subscribe(*channels)
      listen(:SUBSCRIBE, channels)
    end

    def psubscribe(*patterns)
      listen(:PSUBSCRIBE, patterns)
    end

    # Without names, from all. Then their `shift` returns nil.
    def unsubscribe(*channels)
      @channels.each { |channel| channel.push(:UNSUBSCRIBE, channels) }
    end

    def punsubscribe(*patterns)
      @channels.each { |channel| channel.push(:PUNSUBSCRIBE, patterns) }
    end

    private

    def line
      @pins.empty? ? @line : @pins[Fiber.current] || @line
    end

    def listen(command, names)
      channel = Channel.new(@line, command, names)
      @channels.reject!(&:closed?)
      @channels << channel
      channel
    end

    # Messages of a subscription, on a dedicated connection.
    class Channel
      def initialize(line, command, names)
        @names = names.flatten
        @messages = []
        @lease = Rt.call(Rt::REDIS_LEASE, line, true)
        push(command, @names)
        @left = @names.size
      end

      # Waits until Redis has confirmed all names.
      def join
        @messages << receive while @left > 0 && @lease
        @messages.compact!
        self
      end

      # `[channel, message]`, for patterns followed by the pattern; a block gets the same. nil after the last unsubscribe.
      def shift
        until @lease.nil?
          found = @messages.shift || receive
          next unless found
          yield(*found) if block_given?
          return found
        end
        nil
      end

      def push(command, names)
        Rt.call(Rt::REDIS_PUSH, @lease, command, *names) if @lease
      end

      def close
        lease = @lease
        @lease = nil
        Rt.call(Rt::REDIS_GIVE_BACK, lease, false) if lease
      end

      def closed?
        @lease.nil?
      end

      private

      # A message; nil for other replies.
      def receive
        message = Rt.wait(Rt::WAIT_REDIS_NEXT, @lease, nil)
        if message.is_a?(Exception)
          close
          raise message.is_a?(::Redis::BaseError) ? Redis.error(message, nil) : message
        end
        kind, *rest = message
        case kind
        when 'message' then return rest
        when 'pmessage' then return [rest[1], rest[2], rest[0]]
        when 'subscribe', 'psubscribe' then @left -= 1
        when 'unsubscribe', 'punsubscribe' then close if rest[-1] == 0
        end
        nil
      end
    end
  end
end
