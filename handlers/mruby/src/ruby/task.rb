# Tasks: code that runs in pooled fibers and can wait.
#
# No exception leaves a task's fiber: some releases of mruby break if one does.

# When a task waits within a Fiber or Enumerator of the handler, the marker is passed out through it, and the result back in. Endlessly
# nested fibers would leave mruby in a state in which it can neither continue nor be stopped.
class Fiber
  DEEPEST = 100

  def resume(*args)
    depth = Rt.depth
    raise FiberError, "fibers are nested too deeply: more than #{DEEPEST} in each other" if depth >= DEEPEST
    begin
      Rt.depth = depth + 1
      given = __resume__(*args)
      while given.equal?(Rt::WAITING)
        # Others run meanwhile.
        Rt.depth = depth
        answer = Rt.leave(given)
        Rt.depth = depth + 1
        given = __continue__(answer)
      end
      given
    ensure
      Rt.depth = depth
    end
  end
end

module Rt
  @depth = 0
  # The code of every fiber. One Proc for all of them: mruby counts the Procs of the same code, up to 65,535.
  seal(proc do |job, argument, request|
    while true
      @depth = 0
      result =
        begin
          request ? respond(job, argument, request) : __send__(job, *argument)
        rescue Exception => e
          # First, and here: elsewhere each instruction may raise.
          grant
          report(e)
        end
      job, argument, request = leave(result)
    end
  end)

  class << self
    # How deeply the handler's own Fibers are nested at the moment.
    attr_accessor :depth

    # The report of an exception. Its own methods may raise, too.
    def report(error)
      [:raised, error.class.to_s, error.message.to_s, error.backtrace || []]
    rescue Exception
      [:raised, 'Exception', 'an exception that cannot be described', []]
    end

    # Waits for the server to do `op`; raises its exception.
    def wait!(op, *args)
      given = wait(op, *args)
      raise given if given.is_a?(Exception)
      given
    end

    # An exception of the class that the server names.
    def fault(name, message)
      name.split('::').inject(Object) { |scope, part| scope.const_get(part) }.new(message)
    rescue NameError
      RuntimeError.new("#{name}: #{message}")
    end

    # The number of the handler that is the last value of `code`.
    def load_app(code, file)
      handler = ::TOPLEVEL.__send__(:__load__, code, file)
      unless handler.respond_to?(:call)
        wanted = handler.is_a?(Class) && handler.method_defined?(:call) ? "#{handler}.new" : 'an object that responds to call(env)'
        raise TypeError, "app is not callable: the last value is #{handler.inspect}; expected #{wanted}"
      end
      apps << handler
      apps.size - 1
    end
  end
end

TOPLEVEL = self

class Object
  # A method of Object, so that classes, constants and methods at the top level of a file become Object's, as in Ruby.
  def __load__(code, file)
    eval(code, nil, file, 1)
  end
end

# With many waiting tasks, a collection of the old generation is one long pause; without generations it runs in steps.
GC.generational_mode = false
# A waiting request adds more objects to mark than the two children per new object that mruby assumes: marking
# would not keep up with new requests and never finish, and the heap would grow to its limit.
GC.step_ratio = 1000
