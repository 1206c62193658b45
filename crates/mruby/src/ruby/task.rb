# Tasks: what runs in fibers of ours, and how they wait.
#
# A task never lets an exception out of its fiber: some releases of mruby break when one does.
module Rt
  @depth = 0
  # What every fiber does. One Proc for all of them: mruby counts the Procs that are made of the same code, up to 65,535.
  @work = proc do |job, argument, request|
    # Found at once, where a constant would be looked for with each job.
    fibers = Fiber
    while true
      @depth = 0
      result =
        begin
          request ? respond(job, argument, request) : __send__(job, *argument)
        rescue Exception => e
          [:raised, e.class.to_s, e.message.to_s, e.backtrace || []]
        end
      job, argument, request = fibers.yield(result)
    end
  end

  class << self
    # How many Fibers of the handler are in each other just now.
    attr_accessor :depth

    # A fiber that does one job after the other: pooled, because a new one costs more than the job.
    def fiber
      Fiber.new(&@work)
    end

    # Waits for the server to do `op`; what it fails with is raised here.
    def wait!(op, *args)
      given = wait(op, *args)
      raise given if given.is_a?(Exception)
      given
    end

    # An exception that the server names.
    def fault(name, message)
      name.split('::').inject(Object) { |scope, part| scope.const_get(part) }.new(message)
    rescue NameError
      RuntimeError.new("#{name}: #{message}")
    end

    # The number of the handler that `code` ends in.
    def load_app(code, file)
      handler = ::TOPLEVEL.__send__(:__load__, code, file)
      unless handler.respond_to?(:call)
        wanted = handler.is_a?(Class) && handler.method_defined?(:call) ? "#{handler}.new" : 'what answers call(env)'
        raise TypeError, "app is not callable: the last value is #{handler.inspect}; expected #{wanted}"
      end
      apps << handler
      apps.size - 1
    end
  end
end

TOPLEVEL = self

class Object
  # A method of Object, so that classes, constants and methods at the top of a file are Object's, as everywhere in Ruby.
  def __load__(code, file)
    eval(code, nil, file, 1)
  end
end

# A task that waits within a Fiber or Enumerator of the handler: its marker goes through to us, and the answer back. Fibers in
# fibers without end would leave mruby in a state in which it can neither go on nor be stopped.
class Fiber
  DEEPEST = 100

  alias __resume__ resume

  def resume(*args)
    given = __enter__(*args)
    given = __enter__(Fiber.yield(given)) while given.equal?(Rt::WAITING)
    given
  end

  private

  def __enter__(*args)
    depth = Rt.depth
    raise FiberError, "fibers are nested too deeply: more than #{DEEPEST} in each other" if depth >= DEEPEST
    begin
      Rt.depth = depth + 1
      __resume__(*args)
    ensure
      Rt.depth = depth
    end
  end
end

module Kernel
  def sleep(*args)
    raise ArgumentError, "wrong number of arguments (given #{args.size}, expected 0..1)" if args.size > 1
    return Rt.wait!(:sleep) if args.empty?
    unless args[0].respond_to?(:to_f)
      raise TypeError, "can't convert #{args[0].class} into time interval: expected seconds such as 0.5"
    end
    seconds = args[0].to_f
    raise ArgumentError, 'time interval must not be negative' if seconds < 0
    Rt.wait!(:sleep, seconds)
  end
end

# With many tasks that wait, a collection of the old generation is one long pause; without generations the work comes in steps.
GC.generational_mode = false
# A request that waits gives the collector more to mark than two children for each object that it makes, mruby's measure: marking
# would not keep up with new requests, never end, and the heap would grow to its limit.
GC.step_ratio = 1000
