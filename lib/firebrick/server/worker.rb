# frozen_string_literal: true

module Firebrick
  class Server
    # The threads of this process that serve the requests of one server.
    class Worker
      # How the paths of this library begin in backtraces.
      OWN = "#{File.expand_path('..', __dir__)}/".freeze

      # The release of Rack; nil without it, for an app need not use it.
      def self.rack
        require "rack"
        Rack.release
      rescue LoadError
        nil
      end

      # links:: descriptors of the sockets to the front, which belong to the worker from now on
      # bell::  a pipe that is written to when #tend has something to do
      def initialize(app, settings, links:, scoreboard:, bell:)
        rack = self.class.rack
        modern = rack.nil? || rack.to_i >= 3
        @serial = Native.attach(app, settings.env, settings.threads, settings.limits, modern, links, scoreboard.fileno,
                                settings.slot_len, bell.fileno)
      end

      # Starts threads again that the app has killed. Whether the worker has finished, and nothing of it is left.
      def tend
        Native.revive(@serial)
        Native.release(@serial)
      end

      def serves_in?(thread)
        serving.any? { |one,| one == thread }
      end

      # What would be a signal if it had a process of its own.
      def signal(name)
        case name
        when "URG" then Native.attached_traces(@serial, traces)
        when "KILL" then kill
        else Report.log(backtraces)
        end
      end

      # Nothing can be sent any more, and threads that serve are killed.
      def kill
        threads = serving.map(&:first) - [Thread.current]
        Native.lose(@serial)
        threads.each(&:kill)
      end

      private

      # For each request that is being served: its thread, the number of its link, its id there.
      def serving
        Native.attached_serving(@serial)
      end

      # Link, id and the lines of the app, relative to the current folder.
      def traces
        here = "#{Dir.pwd.chomp('/')}/"
        serving.map do |thread, link, id|
          lines = thread.backtrace.to_a.take_while { |line| !line.start_with?(OWN) }
          [link, id, lines.map { |line| line.delete_prefix(here) }]
        end
      end

      # Where all threads are, for the log.
      def backtraces
        prefix = "firebrick: #{Exchange.name}:"
        Thread.list.flat_map do |thread|
          ["#{prefix} #{thread.inspect}", *thread.backtrace.to_a.map { |line| "#{prefix}     #{line}" }]
        end.join("\n")
      end
    end
  end
end
