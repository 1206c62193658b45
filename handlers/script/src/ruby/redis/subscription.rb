# Subscriptions: messages instead of replies, on a dedicated connection.
class Redis
  # Yielded by `subscribe`: takes the blocks for messages. These may wait.
  class Subscription
    def initialize(line)
      @lease = Rt.call(Rt::REDIS_LEASE, line, true)
      @blocks = {}
    end

    %w[message pmessage subscribe psubscribe unsubscribe punsubscribe].each do |kind|
      define_method(kind) { |&block| @blocks[kind] = block }
    end

    alias on_unsubscribe unsubscribe
    alias on_punsubscribe punsubscribe

    # Sets a block, or, without one, sends the command.
    def unsubscribe(*channels, &block)
      block ? on_unsubscribe(&block) : Rt.call(Rt::REDIS_PUSH, @lease, :UNSUBSCRIBE, *channels)
    end

    def punsubscribe(*patterns, &block)
      block ? on_punsubscribe(&block) : Rt.call(Rt::REDIS_PUSH, @lease, :PUNSUBSCRIBE, *patterns)
    end

    # Runs until nothing is subscribed; with `seconds` until no message arrives for that long.
    def run(seconds, command, names)
      Rt.call(Rt::REDIS_PUSH, @lease, command, *names)
      while true
        message = Rt.wait!(Rt::WAIT_REDIS_NEXT, @lease, seconds)
        return nil if message.nil?
        raise message if message.is_a?(Exception)
        kind, *rest = message
        block = @blocks[kind]
        block.call(*rest) if block
        return nil if rest[-1] == 0 && (kind == 'unsubscribe' || kind == 'punsubscribe')
      end
    end

    def close
      Rt.call(Rt::REDIS_GIVE_BACK, @lease, false)
    end
  end
end
