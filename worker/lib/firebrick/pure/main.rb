# frozen_string_literal: true

require "English"
require "rubygems"
require "socket"
require "firebrick/pure/native"
require "firebrick/template"
require "firebrick/template/boot"
require "firebrick/pure/descriptors"
require "firebrick/pure/frames"

module Firebrick
  module Pure
    # A worker that was spawned, not forked: it connects to the front, loads the app, and serves
    # (docs/internals/wire.md, "Workers that connect").
    class Main
      CONTROL = 0
      LINK = 1
      BESIDE = 2
      STREAM = 3
      # Descriptors travel beside the links, and the scoreboard, which is sent as one, is writable.
      ABILITIES = Wire::Can::BESIDE | Wire::Can::SCOREBOARD

      # Loads the app like a template, without the steps that only help forks.
      class Boot < Template::Boot
        # Returns the worker's pool, which only the front knows by name.
        def pool
          shape = numbers(Wire::Boot::THREADS_MIN, Wire::Boot::THREADS_MAX, Wire::Boot::FIBERS)
          Firebrick::Worker::Pool.new(*shape, "default")
        end

        private

        def tidy; end

        def name_process; end

        def threads_of_the_app(_threads)
          []
        end
      end

      # Returns when the worker has finished.
      def self.run
        Template::Allocator.restore_environment
        new(ENV.delete("FIREBRICK_FRONT"), ENV.delete("FIREBRICK_TOKEN"), Integer(ENV.delete("FIREBRICK_WORKER"))).run
      end

      def initialize(path, token, index)
        @path = path
        @token = token
        @index = index
        @abilities = Descriptors.possible? ? ABILITIES : 0
      end

      def run
        end_at_once
        ignore_signals
        control = connect(CONTROL, 0)
        scoreboard = receive_scoreboard(control)
        settings = read_settings(control)
        watch(control)
        boot = load_app(settings, scoreboard, control)
        links = Array.new(Integer(settings.fetch(Wire::Boot::LINKS).last)) { |number| link(number) }
        require "firebrick/worker"
        Firebrick::Worker.run(@index, links, boot, boot.pool)
      end

      private

      # Exits after the app's own `at_exit`. JRuby would wait for threads that wait for the front, which waits for this
      # process.
      def end_at_once
        at_exit do
          error = $ERROR_INFO
          # `exit!` keeps Ruby from showing it.
          warn error.full_message(highlight: false) if error.is_a?(StandardError) || error.is_a?(ScriptError)
          [$stdout, $stderr].each(&:flush)
          next exit!(0) if error.nil?

          exit!(error.is_a?(SystemExit) ? error.status : 1)
        end
      end

      def link(number)
        socket = connect(LINK, number)
        return Descriptors::Beside.new(socket, connect(BESIDE, number)) unless @abilities.zero?

        Descriptors::Connected.new(socket) { connect(STREAM, number) }
      end

      def connect(role, number)
        socket = UNIXSocket.new(@path)
        socket.write(Frames.frame(Wire::Frame::HELLO, 0,
                                  [Wire::VERSION, role, @abilities, number].pack("vCCv") << @token))
        socket
      end

      # Receives the scoreboard with the first byte, if this Ruby can receive descriptors. A front that no longer wants
      # this process has closed the socket.
      def receive_scoreboard(control)
        return control.read(1) ? nil : exit!(0) if @abilities.zero?

        File.for_fd(control.recv_io(nil), "r+b")
      rescue SystemCallError, SocketError, IOError
        exit!(0)
      end

      # Virtual machines reserve some signals; Java's writes backtraces at QUIT. It stops threads by USR2 for its
      # tools (Flight Recorder), although it lets programs trap that signal.
      def ignore_signals
        (Template::IGNORED + ["TERM"] - (RUBY_ENGINE == "jruby" ? %w[USR2 QUIT] : [])).each do |name|
          trap(name) { nil }
        rescue ArgumentError
          next
        end
      end

      # Reads the settings that a template gets by `boot`: all values of each key.
      def read_settings(control)
        length = control.read(4).unpack1("V")
        words = control.read(length).force_encoding(Encoding::UTF_8).split("\0", -1)
        words.drop(1).each_slice(2).group_by(&:first).transform_values { |pairs| pairs.map(&:last) }
      end

      # Watches the control socket. Its end means that the front is gone; a byte means that the front no longer needs
      # this process.
      def watch(control)
        Thread.new do
          clean_up unless byte(control)
          exit!(0)
        end
      end

      # If the front ends before it has read everything, the connection is reset.
      def byte(control)
        control.read(1)
      rescue SystemCallError
        nil
      end

      # Removes the socket that a killed front has left.
      def clean_up
        File.unlink(@path)
        Dir.rmdir(File.dirname(@path))
      rescue SystemCallError
        # Another process has done it, or it was not needed.
        nil
      end

      def load_app(settings, scoreboard, control)
        check_wire(settings.fetch(Wire::Boot::WIRE, []).last)
        boot = Boot.new(settings, scoreboard)
        tell_of_files(control, boot.run)
        boot
      rescue Exception => e # rubocop:disable Lint/RescueException
        warn "firebrick: worker #{@index} (pid #{Process.pid}): the app cannot be loaded:\n#{Template::Boot.explain(e)}"
        exit!(1)
      end

      # Reports the files that a template reports with `booted`.
      def tell_of_files(control, facts)
        lines = facts.map { |key, line| line if key == PublicFiles::KEY }.compact
        text = [Wire::Report::FILES, *lines].map { |line| line.b.delete("\0") }.join("\0")
        control.write([text.bytesize].pack("V") << text)
      end

      def check_wire(wanted)
        return if wanted == Wire::VERSION.to_s

        raise LoadError, "the program speaks version #{wanted} of its wire, the library version #{Wire::VERSION}: " \
                         "they are of different builds. Install the gem again"
      end
    end
  end
end
