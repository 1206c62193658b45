# frozen_string_literal: true

module Firebrick
  class Server
    # The threads of this process that serve the requests of one server.
    class Worker
      # The path prefix of this library in backtraces.
      OWN = "#{File.expand_path('..', __dir__)}/"

      # Returns the release of Rack; nil without Rack, which an app need not use.
      def self.rack
        require "rack"
        Rack.release
      rescue LoadError
        nil
      end

      # links:: descriptors of the sockets to the front, which the worker takes over
      # bell::  a pipe that is written to when there is work for #tend
      def initialize(app, settings, links:, scoreboard:, bell:)
        rack = self.class.rack
        modern = rack.nil? || rack.to_i >= 3
        front = { links: links, scoreboard: scoreboard.fileno, slot_len: settings.slot_len, bell: bell.fileno }
        @serial = Native.attach(app, settings.env, settings.options.merge(rack3: modern), front)
      end

      # Restarts threads that the app has killed. Returns whether the worker has finished and released everything.
      def tend
        Native.revive(@serial)
        Native.release(@serial)
      end

      def serves_in?(thread)
        serving.any? { |one,| one == thread }
      end

      # Handles an order that a worker in its own process gets as a signal.
      def signal(name)
        case name
        when "URG" then Native.attached_traces(@serial, traces)
        when "KILL" then kill
        else Report.log(backtraces, level: "info")
        end
      end

      # Kills the serving threads. Nothing can be sent any more.
      def kill
        threads = serving.map(&:first) - [Thread.current]
        Native.lose(@serial)
        threads.each(&:kill)
      end

      private

      # Lists the requests being served: for each its thread, the number of its link, its id there.
      def serving
        Native.attached_serving(@serial)
      end

      # Returns link, id and the lines of the app, relative to the current folder.
      def traces
        here = "#{Dir.pwd.chomp('/')}/"
        serving.map do |thread, link, id|
          lines = thread.backtrace.to_a.take_while { |line| !line.start_with?(OWN) }
          [link, id, lines.map { |line| line.delete_prefix(here) }]
        end
      end

      # Returns the backtraces of all threads, for the log.
      def backtraces
        prefix = "firebrick: #{Exchange.name}:"
        Thread.list.flat_map do |thread|
          ["#{prefix} #{thread.inspect}", *thread.backtrace.to_a.map { |line| "#{prefix}     #{line}" }]
        end.join("\n")
      end
    end
  end
end
