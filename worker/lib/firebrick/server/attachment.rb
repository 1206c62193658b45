# frozen_string_literal: true

require "socket"
require "firebrick/native"
require "firebrick/version"
require "firebrick/binary"
require "firebrick/environment"
require "firebrick/template/control"
require "firebrick/server/conversation"
require "firebrick/server/fork_guard"
require "firebrick/server/front"
require "firebrick/server/pipes"
require "firebrick/server/settings"
require "firebrick/server/worker"

module Firebrick
  class Server
    # This process as the worker of a front (docs/internals/processes.md, "An attached worker"), from the start of a
    # server to its end: one thread talks to the front, others serve requests.
    #
    # Contract: whichever ends first, front, worker or thread, the others follow, and #join returns.
    class Attachment
      # Orders: finish the requests and end; end at once.
      DRAIN = Conversation::DRAIN
      HALT = Conversation::HALT

      def initialize(app, arguments)
        @front = Front.new(arguments)
        @app = app
      end

      # Returns when the server listens; raises the reason if it does not.
      def start
        refuse unless Native.respond_to?(:attach)
        ForkGuard.watch(self)
        @pipes = Pipes.new
        @conversation = Conversation.new(@app, @front, @pipes)
        @thread = Thread.new { run }
        @thread.name = "firebrick"
        error = wait_until_started or return
        @thread.join
        raise error
      end

      def running?
        !@thread.nil? && @thread.alive? && !addresses.empty?
      end

      def addresses
        @conversation.addresses
      end

      def development?
        @conversation.settings&.development?
      end

      def front_pid
        @front.pid
      end

      def stop(now: false)
        return unless @thread&.alive?

        order(now ? HALT : DRAIN)
        @thread.join unless own_thread?
      end

      # Sends the thread an order, without waiting for it. May be called in a trap.
      def order(what)
        @pipes.order(what)
      end

      def join
        @thread&.join
        error = @conversation&.error
        raise error if error
      end

      # Gives everything up in a forked child; it belongs to the parent.
      def abandon
        @conversation&.abandon
        @thread = nil
      end

      private

      def refuse
        why = NATIVE_MISSING || "there is no native part of the worker for this Ruby"
        raise Error, "#{why}. A server in the app's process needs it; #{NATIVE_ADVICE}. The program `firebrick` " \
                     "serves the app without it, more slowly"
      end

      def run
        @conversation.run
      ensure
        ForkGuard.forget(self)
      end

      def wait_until_started
        @conversation.started.pop
      rescue Exception # rubocop:disable Lint/RescueException
        stop(now: true)
        raise
      end

      def own_thread?
        current = Thread.current
        current == @thread || @conversation.serves_in?(current)
      end
    end
  end
end
