# Removes what would block all requests or end the server; output goes to the error log.
module Rt
  # mruby's constants for files, sockets and internals.
  ABSENT = %i[
    IO File FileTest Dir Socket BasicSocket IPSocket TCPSocket TCPServer UDPSocket UNIXSocket UNIXServer Addrinfo
    ObjectSpace STDIN Thread Mutex Ractor Open3 TracePoint Binding
  ].freeze
  ABSENT_CALLS = %i[` system exec fork spawn open popen gets readline readlines select exit exit! abort at_exit trap getc __printstr__ printstr].freeze

  class << self
    def clear(type)
      # Since mruby 3.4 private methods are in no list.
      ABSENT_CALLS.each do |name|
        type.__send__(:remove_method, name)
      rescue NameError
        next
      end
    end
  end

  class Errors
    def print(*texts)
      Rt.call(LOG, texts.join)
      nil
    end

    def printf(*args)
      print(format(*args))
    end

    def sync
      true
    end

    def sync=(value)
      value
    end

    def isatty
      false
    end
    alias tty? isatty

    def fileno
      2
    end
  end
end

Rt.clear(Kernel)
Rt.clear(Object)
Rt::ABSENT.each { |name| Object.__send__(:remove_const, name) if Object.const_defined?(name) }

class Module
  def const_missing(name)
    # Not a constant, because handlers may have a Channel of their own.
    return H2O::Channel if name == :Channel
    hint = Rt::ABSENT.include?(name) ? ': handlers have no files, sockets, processes or threads' : ''
    raise NameError, "uninitialized constant #{name}#{hint}"
  end
end

%i[STDOUT STDERR].each { |name| Object.__send__(:remove_const, name) if Object.const_defined?(name) }
STDOUT = STDERR = Rt::ERRORS
$stdout = $stderr = Rt::ERRORS

module Kernel
  def puts(*lines)
    Rt::ERRORS.puts(*lines.flatten)
  end

  def print(*texts)
    Rt::ERRORS.print(*texts)
  end

  def printf(*args)
    Rt::ERRORS.print(format(*args))
  end

  def warn(*lines)
    Rt::ERRORS.puts(*lines.flatten)
  end

  def p(*values)
    values.each { |value| Rt.call(Rt::LOG, value.inspect) }
    values.size > 1 ? values : values[0]
  end

  def pp(*values)
    p(*values)
  end
end
