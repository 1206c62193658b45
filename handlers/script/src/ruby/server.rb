# Tasks and channels. Everything here waits without blocking the thread.
module Rt
  # The request was cancelled: its client disconnected, or its deadline passed. Not a StandardError, so that `rescue => e` does not catch it.
  class Cancelled < Exception; end

  @blocks = {}
  @block = 0

  class << self
    # Runs a block as a task as soon as the current one waits.
    def spawn(&block)
      @block += 1
      @blocks[@block] = block
      call(SPAWN, @block)
    end

    # Lets tasks that are ready run first. Where a task cannot wait, they run later.
    def pass
      wait!(WAIT_PASS)
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
  # The object that `task` returns.
  class Task
    def initialize(&block)
      @waiting = []
      Rt.spawn { finish(&block) }
    end

    # Waits for the end: returns the block's value, or raises its exception.
    def join
      unless @done
        ticket = Rt.call(Rt::TICKET)
        @waiting << ticket
        Rt.wait!(Rt::WAIT_PARK, ticket)
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
  def sleep(*args)
    raise ArgumentError, "wrong number of arguments (given #{args.size}, expected 0..1)" if args.size > 1
    return Rt.wait!(Rt::WAIT_SLEEP) if args.empty?
    unless args[0].respond_to?(:to_f)
      raise TypeError, "can't convert #{args[0].class} into time interval: expected seconds such as 0.5"
    end
    seconds = args[0].to_f
    raise ArgumentError, 'time interval must not be negative' if seconds < 0
    Rt.wait!(Rt::WAIT_SLEEP, seconds)
  end

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
        Rt.wait!(Rt::WAIT_PARK, ticket)
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
