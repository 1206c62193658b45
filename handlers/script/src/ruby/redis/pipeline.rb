# The objects that `pipelined` and `multi` yield, and that their commands return.
class Redis
  # The future reply of a command in a pipeline or transaction.
  class Future
    def initialize(kind, words)
      @kind = kind
      @words = words
    end

    def value
      raise FutureNotReady, "#{inspect}: its pipeline has not been sent" unless @ready
      raise @reply if @reply.is_a?(Exception)
      @reply
    end

    def set(reply)
      @ready = true
      @reply = Reply.as(@kind, reply)
    end

    def inspect
      "#<Redis::Future #{@words.join(' ')}>"
    end
  end

  # Yielded by `pipelined` and `multi`: collects commands and sends none.
  class Pipeline
    include Commands

    attr_reader :commands

    def initialize
      @commands = []
      @futures = []
    end

    def call(*words)
      run(nil, *words)
    end

    def pipelined
      yield self
    end

    def finish(replies, raising)
      values = []
      replies.each_with_index { |reply, index| values << @futures[index].set(reply) }
      error = raising && values.find { |value| value.is_a?(Exception) }
      raise error if error
      values
    end

    private

    def run(kind, *words)
      @commands << words
      future = Future.new(kind, words)
      @futures << future
      future
    end

    # Commands in a pipeline cannot block.
    def block(kind, _seconds, *words)
      run(kind, *words)
    end
  end
end
