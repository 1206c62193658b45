# frozen_string_literal: true

require "firebrick/public_files"
require "firebrick/server/ending"
require "firebrick/server/stopping"
require "firebrick/template/connection_pool"
require "firebrick/template/hub_facts"
require "firebrick/template/yjit"

module Firebrick
  class Server
    # The exchange of messages between this process and its front, from the start of the front to its end.
    class Conversation
      include Ending
      include Stopping

      # Orders: finish the requests and end; end at once.
      DRAIN = "d"
      HALT = "h"

      # The addresses on which the server listens; empty before and after.
      attr_reader :addresses
      # The settings that the front has read; nil before.
      attr_reader :settings
      # The reason why the server has ended, unless it was stopped.
      attr_reader :error
      # A queue that gets nil when the server listens, or an exception when it never will.
      attr_reader :started

      def initialize(app, front, pipes)
        @app = app
        @front = front
        @pipes = pipes
        @addresses = []
        @started = Thread::Queue.new
      end

      # Returns when the front has ended.
      def run
        @control = @front.start
        turn until @over
      rescue StandardError, ScriptError => e
        @error = e
      ensure
        finish
      end

      def serves_in?(thread)
        !@worker.nil? && @worker.serves_in?(thread)
      end

      # Gives everything up in a forked child; it belongs to the parent.
      def abandon
        @addresses = []
        close
      end

      private

      # Waits for an event, and handles it.
      def turn
        woken = @pipes.wait(@control.to_io, patience) do |what|
          case what
          when :bell then tend
          when :control then hear
          else obey(what)
          end
        end
        @over = true unless woken
      end

      def obey(orders)
        return @over = true if orders.include?(HALT)

        ask_to_stop
      end

      def tend
        return unless @worker&.tend

        @worker = nil
        @control.send_message(Wire::Report::EXITED, Process.pid, Wire::End::EXIT, 0, 0)
      end

      def hear
        messages = @control.receive or return @over = true

        messages.each do |verb, arguments, descriptors|
          verb == Wire::Order::CONFIGURE ? configure(arguments) : execute(verb, arguments, descriptors)
        end
      end

      def execute(verb, arguments, descriptors)
        case verb
        when Wire::Order::BOOT then boot(arguments, descriptors)
        when Wire::Order::FORK then attach(arguments.first, descriptors)
        when Wire::Order::LISTENING then listening(arguments)
        when Wire::Order::KILL then signal(arguments.last)
        else hear_of_the_end(verb, arguments.first)
        end
      end

      # Evaluates the folder's puma.rb.
      def configure((path, *arguments))
        require "firebrick/server/puma_rb"
        @puma_rb, words = PumaRb.evaluate(@front.path(path), *arguments)
        @control.send_message(*words)
      end

      # Takes the settings that the front has read.
      def boot(arguments, descriptors)
        @settings = Settings.new(arguments)
        @control.links = @settings.links
        @scoreboard = IO.for_fd(descriptors.first)
        Front.check_wire(@settings.wire)
        Exchange.name ||= "server (pid #{Process.pid})"
        @control.booted(facts)
      end

      def facts
        [*Template::Yjit.apply(@settings.yjit), [Wire::Booted::RACK, Worker.rack || "none"], [Wire::Booted::MS, 0],
         *PublicFiles.facts(@app), *Template::ConnectionPool.facts, *Template::HubFacts.facts(**@settings.hub)]
      end

      # Starts the worker, which runs in this process.
      def attach(index, links)
        app = @puma_rb ? @puma_rb.wrap(@app) : @app
        @worker = Worker.new(app, @settings, links: links, scoreboard: @scoreboard, bell: @pipes.ring)
        @control.send_message(Wire::Report::FORKED, index, Process.pid)
      rescue StandardError => e
        links.each { |descriptor| IO.for_fd(descriptor).close }
        @error = e
        @control.send_message(Wire::Report::FORK_FAILED, index, e.message)
      end

      def listening(addresses)
        @addresses = addresses
        @puma_rb&.booted
        @started << nil
      end

      def signal(name)
        @killed_by ||= now + GRACE if name == "KILL"
        @worker&.signal(name)
      end
    end
  end
end
