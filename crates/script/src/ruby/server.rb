# What handlers may use of the server: tasks and channels. Everything here waits without holding the thread.
module Rt
  # A request was given up: its client has gone, or its time is over. Not a StandardError, so that `rescue => e` lets it pass.
  class GivenUp < Exception; end

  @blocks = {}
  @block = 0

  class << self
    # Runs a block as a task of its own as soon as the one that runs now waits.
    def spawn(&block)
      @block += 1
      @blocks[@block] = block
      call(SPAWN, @block)
    end

    # Lets those who can go on do so first. In a place that cannot be left they go on later.
    def pass
      wait!(:pass)
    rescue FiberError
      nil
    end

    def run_block(number)
      @blocks.delete(number).call
      nil
    end
  end
end

module Rt
  # What `task` gives: something to wait for.
  class Task
    def initialize(&block)
      @waiting = []
      Rt.spawn { finish(&block) }
    end

    # Waits for the end: the block's value, or its exception.
    def join
      unless @done
        ticket = Rt.call(Rt::TICKET)
        @waiting << ticket
        Rt.wait!(:park, ticket)
      end
      @seen = true
      raise @error if @error
      @value
    end
    alias value join

    def done?
      @done ? true : false
    end

    private

    def finish
      @value = yield
    rescue Exception => e
      @error = e
      Rt.call(Rt::LOG, "in a task: #{e.message} (#{e.class})") if @waiting.empty?
    ensure
      @done = true
      @waiting.each { |ticket| Rt.call(Rt::WAKE, ticket) }
    end
  end
end

module Kernel
  # Runs the block at once until it waits, then goes on here.
  def task(&block)
    raise ArgumentError, 'task needs a block' unless block
    made = Rt::Task.new(&block)
    Rt.pass
    made
  end
end

module H2O
  # A queue between tasks: `shift` waits until there is something.
  class Channel
    def initialize
      @queue = []
      @waiting = []
    end

    def push(value)
      @queue << value
      while (ticket = @waiting.shift)
        next unless Rt.call(Rt::WAKE, ticket)
        Rt.pass
        break
      end
      self
    end
    alias << push

    def shift
      while @queue.empty?
        ticket = Rt.call(Rt::TICKET)
        @waiting << ticket
        Rt.wait!(:park, ticket)
      end
      @queue.shift
    end

    def size
      @queue.size
    end

    def empty?
      @queue.empty?
    end
  end
end
