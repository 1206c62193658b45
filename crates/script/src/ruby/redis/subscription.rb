# Subscriptions: messages instead of replies, on a connection of their own.
class Redis
  # What `subscribe` yields: blocks for what comes. They may wait.
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

    # A block to be called, or, without one, a command.
    def unsubscribe(*channels, &block)
      block ? on_unsubscribe(&block) : Rt.call(Rt::REDIS_PUSH, @lease, :UNSUBSCRIBE, *channels)
    end

    def punsubscribe(*patterns, &block)
      block ? on_punsubscribe(&block) : Rt.call(Rt::REDIS_PUSH, @lease, :PUNSUBSCRIBE, *patterns)
    end

    # Until nothing is subscribed any more; with a time until nothing has come for so long.
    def run(seconds, command, names)
      Rt.call(Rt::REDIS_PUSH, @lease, command, *names)
      while true
        message = Rt.wait!(:redis_next, @lease, seconds)
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
