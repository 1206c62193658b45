# frozen_string_literal: true

require "firebrick/fork_guard"
require "firebrick/native"
require "firebrick/version"
require "firebrick/wire"
require "firebrick/template/allocator"
require "firebrick/template/configuring"
require "firebrick/template/control"
require "firebrick/template/engine"
require "firebrick/template/fiber_stack"
require "firebrick/template/lives"
require "firebrick/template/oom_score"
require "firebrick/template/whereabouts"
require "firebrick/template/yjit"

module Firebrick
  # The process that loads the app once and then only forks workers (docs/internals/processes.md). Before Bundler is
  # set up, it loads no library that could be a gem.
  class Template
    include Configuring
    include Lives
    include OomScore
    include Whereabouts

    # Ignored by template and workers. By a handler, not "IGNORE", which processes that the app starts would inherit.
    IGNORED = %w[INT QUIT HUP USR1 USR2 TTIN TTOU WINCH].freeze

    class << self
      # The front's process id.
      attr_reader :front

      def run
        Engine.check
        again = ["-I", File.dirname(__dir__), "-rfirebrick/template", "-e", "Firebrick::Template.run"]
        Yjit.choose(ENV.delete("FIREBRICK_YJIT"), *again)
        Engine.explain
        [Allocator, FiberStack].each(&:restore_environment)
        @front = Integer(ENV.delete("FIREBRICK_FRONT_PID"))
        new(Control.new(Integer(ENV.delete("FIREBRICK_CONTROL_FD"))), @front).run
      end

      # Sets Bundler up. Before this no library may be loaded that could be a gem.
      def set_up_bundler
        require "bundler/setup" if ENV["BUNDLE_GEMFILE"] || File.file?("Gemfile") || File.file?("gems.rb")
      end
    end

    # front:: its process id
    def initialize(control, front)
      @control = control
      ForkGuard.hold(control)
      @front = front
      @children = nil
      @unlink = []
    end

    def run
      offer_to_the_kernel
      # While the app loads, the control socket is not read.
      Native.parent_death_signal(Signal.list["KILL"])
      # The front has exited before the signal was requested.
      exit!(0) unless Process.ppid == @front
      ignore_signals(*IGNORED, "TERM")
      tell_where_when_asked
      boot(first_message)
      Native.parent_death_signal(0)
      ignore_signals("INT", "QUIT", "TERM")
      live { serve_commands }
    end

    private

    def ignore_signals(*names)
      names.each { |name| trap(name) { nil } }
    end

    def boot(message)
      verb, arguments, descriptors = message
      exit!(verb == Wire::Order::EXIT ? 0 : 1) unless verb == Wire::Order::BOOT
      settings = arguments.each_slice(2).group_by(&:first).transform_values { |pairs| pairs.map(&:last) }
      @unlink = settings.fetch(Wire::Boot::UNLINK, [])
      load_app(settings, descriptors.first)
    end

    def load_app(settings, scoreboard)
      require "firebrick/template/boot"
      check_wire(settings.fetch(Wire::Boot::WIRE, []).last)
      @boot = Boot.new(settings, scoreboard)
      @control.links = Integer(settings.fetch(Wire::Boot::LINKS).last)
      @facts = @boot.run { |text| @control.send_message(Wire::Report::WARMING, text) }
      require "firebrick/template/children"
      ready
    rescue Exception => e # rubocop:disable Lint/RescueException
      @control.send_message(Wire::Report::FAILED, Boot.explain(e))
      exit!(1)
    end

    def ready
      @children = Children.new(@control, @boot.jobs)
      @control.booted(@facts)
    end

    # Checks the version of the protocol. A mismatch would show only as workers that exit.
    def check_wire(wanted)
      ours = Native.respond_to?(:wire) ? Native.wire.to_s : "1"
      return if ours == wanted

      raise LoadError, "the program speaks version #{wanted} of its wire, the library in #{__dir__} version #{ours}: " \
                       "they are of different builds. Build both (`make build`), or install the gem again"
    end

    def serve_commands
      loop do
        messages = @control.read(@children.bell)
        @children.reap
        break if messages.nil?

        messages.each { |message| execute(*message) }
      end
      @children.stop_all
      unlink_all
      exit
    end

    def unlink_all
      @unlink.each do |path|
        File.unlink(path)
      rescue SystemCallError
        # Removed already, or not permitted.
        next
      end
    end

    def execute(verb, arguments, descriptors)
      case verb
      when Wire::Order::FORK then fork_worker(arguments.shift.to_i, Worker::Pool.parse(*arguments), descriptors)
      when Wire::Order::SERVICE then fork_service(arguments, descriptors)
      when Wire::Order::KILL then @children.kill(Integer(arguments[0]), arguments[1])
      when Wire::Order::UNLINK then @unlink = arguments
      when Wire::Order::BEFORE_FORK then @children.start_jobs_again
      # The app's `at_exit` blocks run, as in Puma's master process.
      when Wire::Order::EXIT then exit
      end
    end
  end
end
