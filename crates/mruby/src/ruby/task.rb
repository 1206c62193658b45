# Tasks: what runs in fibers of ours, and how they wait.
#
# A task never lets an exception out of its fiber: some releases of mruby break when one does.
module Rt
  @apps = []

  class << self
    attr_reader :apps

    # A fiber that does one job after the other: pooled, because a new one costs more than the job.
    def fiber
      Fiber.new do |job, argument|
        while true
          result =
            begin
              job.is_a?(Integer) ? respond(@apps[job], argument) : __send__(job, *argument)
            rescue Exception => e
              [:raised, e.class.to_s, e.message.to_s, e.backtrace || []]
            end
          job, argument = Fiber.yield(result)
        end
      end
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
      app = ::TOPLEVEL.__load__(code, file)
      raise TypeError, "#{file}: app is not callable: its last value is #{app.inspect}" unless app.respond_to?(:call)
      @apps << app
      @apps.size - 1
    end
  end
end

TOPLEVEL = self

def self.__load__(code, file)
  eval(code, nil, file, 1)
end

# A task that waits within a Fiber or Enumerator of the handler: its marker goes through to us, and the answer back.
class Fiber
  alias __resume__ resume

  def resume(*args)
    given = __resume__(*args)
    given = __resume__(Fiber.yield(given)) while given.equal?(Rt::WAITING)
    given
  end
end

module Kernel
  def sleep(*args)
    raise ArgumentError, "wrong number of arguments (given #{args.size}, expected 0..1)" if args.size > 1
    raise ArgumentError, 'time interval must not be negative' if args[0] && args[0] < 0
    Rt.wait!(:sleep, *args)
  end
end
