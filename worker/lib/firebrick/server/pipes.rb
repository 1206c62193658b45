# frozen_string_literal: true

module Firebrick
  class Server
    # Wakes the thread of an attachment: by a bell that its worker rings, and by orders.
    class Pipes
      # The end with which the bell is rung.
      attr_reader :ring

      def initialize
        @bell, @ring = IO.pipe
        @orders, @order = IO.pipe
      end

      # Sends an order. Takes no lock, so it may be called in a trap.
      def order(what)
        @order.write_nonblock(what, exception: false)
      rescue IOError, SystemCallError
        # The thread that reads orders has ended.
        nil
      end

      # Waits for one of these, for +control+, or for some seconds; yields `:bell`, the orders as text, `:control`.
      # Returns whether there was anything.
      def wait(control, seconds)
        ready, = IO.select([@bell, @orders, control].compact, nil, nil, seconds)
        ready.to_a.each do |io|
          case io
          when @bell then read(io) && yield(:bell)
          when @orders then yield(read(io))
          else yield(:control)
          end
        end
        !ready.nil?
      end

      def close
        [@bell, @ring, @orders, @order].each(&:close)
      end

      private

      def read(pipe)
        text = pipe.read_nonblock(4096, exception: false)
        text.is_a?(String) ? text : ""
      end
    end
  end
end
