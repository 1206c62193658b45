# frozen_string_literal: true

require "fiddle"
require "io/nonblock"
require "open3"

# Starts programs by posix_spawn(3), which shares the runner's memory with the child until the child executes the program.
#
# Why: Ruby forks when it runs as root, as the tests do in a container. The kernel then copies the runner's page tables each time, and the
# runner has a gigabyte at its end: that took a fifth of all processor time of the machine.
#
# Contract: options of Process.spawn that are not supported here are left to Ruby.
module QuickSpawn
  STANDARD = { in: 0, out: 1, err: 2 }.freeze
  SET_PGROUP = 2
  SET_SIGMASK = 8
  # Larger than the C library's structures, including its signal sets.
  SIZE = 1024

  # The C library's functions.
  module C
    LIBRARY = Fiddle.dlopen(nil)
    FUNCTIONS = {
      posix_spawnp: %i[voidp voidp voidp voidp voidp voidp], posix_spawnattr_init: %i[voidp], posix_spawnattr_destroy: %i[voidp],
      posix_spawnattr_setflags: %i[voidp short], posix_spawnattr_setsigmask: %i[voidp voidp],
      posix_spawn_file_actions_init: %i[voidp], posix_spawn_file_actions_destroy: %i[voidp],
      posix_spawn_file_actions_adddup2: %i[voidp int int], posix_spawn_file_actions_addclose: %i[voidp int],
      posix_spawn_file_actions_addchdir_np: %i[voidp voidp]
    }.freeze
    TYPES = { voidp: Fiddle::TYPE_VOIDP, short: Fiddle::TYPE_SHORT, int: Fiddle::TYPE_INT }.freeze

    FUNCTIONS.each do |name, arguments|
      function = Fiddle::Function.new(LIBRARY[name.to_s], TYPES.values_at(*arguments), Fiddle::TYPE_INT, need_gvl: true)
      define_singleton_method(name) { |*values| function.call(*values).then { |error| error.zero? or raise SystemCallError.new(name.to_s, error) } }
    end
  end

  # A program to start, with its arguments and options.
  class Request
    def self.of(arguments)
      *arguments, options = arguments if arguments.last.is_a?(Hash)
      environment, *command = arguments if arguments.first.is_a?(Hash)
      request = new(environment || {}, command || arguments, (options || {}).dup)
      request if request.understood?
    end

    def initialize(environment, command, options)
      @environment = environment
      @command = command
      @directory = options.delete(:chdir)
      @group = options.delete(:pgroup)
      @alone = options.delete(:unsetenv_others)
      options.delete(:close_others)
      @redirections = options.flat_map { |keys, value| Array(keys).map { |key| [number(key), value] } }
    end

    def understood?
      plain_command? && [nil, true].include?(@group) && @redirections.all? { |target, value| target && source?(value) } &&
        (sources & @redirections.map(&:first)).empty?
    end

    # Starts the program and returns its process id.
    def start
      opened = []
      actions, attributes, pid = Array.new(3) { Fiddle::Pointer.malloc(SIZE, Fiddle::RUBY_FREE) }
      pid[0, SIZE] = "\0" * SIZE
      C.posix_spawn_file_actions_init(actions)
      C.posix_spawnattr_init(attributes)
      wait_on_standard_streams
      redirect(actions, opened)
      C.posix_spawn_file_actions_addchdir_np(actions, @directory.to_s) if @directory
      C.posix_spawnattr_setsigmask(attributes, pid)
      C.posix_spawnattr_setflags(attributes, SET_SIGMASK | (@group ? SET_PGROUP : 0))
      spawn(pid, actions, attributes)
    ensure
      opened.each(&:close)
      C.posix_spawn_file_actions_destroy(actions)
      C.posix_spawnattr_destroy(attributes)
    end

    private

    # Returns false for a command line for the shell, and for a program with another name.
    def plain_command?
      @command.all?(String) && (@command.length > 1 || @command.first.match?(%r{\A[\w/.+-]+\z})) && !@environment.key?("PATH")
    end

    def number(key)
      case key
      when Integer then key
      when IO then key.fileno
      else STANDARD[key]
      end
    end

    def source?(value)
      case value
      when IO, Integer, String, :close then true
      when Array then value == %i[child out] || (value.first.is_a?(String) && value.length <= 3)
      else STANDARD.key?(value)
      end
    end

    # Makes standard streams blocking, as programs expect. Ruby's pipes are not.
    def wait_on_standard_streams
      @redirections.each { |target, value| value.nonblock = false if value.is_a?(IO) && target <= 2 }
    end

    # Descriptors to redirect from, except those that stay unchanged.
    def sources
      @redirections.filter_map { |target, value| number(value).then { |source| source unless source == target } }
    end

    def redirect(actions, opened)
      later, now = @redirections.partition { |_, value| value == %i[child out] }
      now.each do |target, value|
        next C.posix_spawn_file_actions_addclose(actions, target) if value == :close

        source = number(value) || file(value, target).tap { |file| opened << file }.fileno
        C.posix_spawn_file_actions_adddup2(actions, source, target)
      end
      later.each { |target, _| C.posix_spawn_file_actions_adddup2(actions, 1, target) }
    end

    def file(path, target)
      return File.open(*path) if path.is_a?(Array)

      File.open(path, target.zero? ? "r" : "w")
    end

    def spawn(pid, actions, attributes)
      variables = (@alone ? {} : ENV.to_h).merge(@environment).compact.map { |name, value| "#{name}=#{value}" }
      words, environment = [@command, variables].map { |strings| strings.map { |string| Fiddle::Pointer["#{string}\0"] } }
      C.posix_spawnp(pid, @command.first, actions, attributes, list(words), list(environment))
      pid[0, 4].unpack1("l")
    rescue SystemCallError => e
      raise SystemCallError.new(@command.first, e.errno)
    end

    # A C array that ends with NULL. It does not keep the strings.
    def list(pointers)
      Fiddle::Pointer[(pointers.map(&:to_i) << 0).pack("J*")]
    end
  end

  def spawn(*arguments)
    request = Request.of(arguments)
    request ? request.start : super
  end

  # Open3 calls Kernel's method.
  module InOpen3
    def spawn(...)
      Process.spawn(...)
    end
  end

  Process.singleton_class.prepend(self)
  Open3.singleton_class.prepend(InOpen3)
end
