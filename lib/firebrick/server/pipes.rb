# frozen_string_literal: true

module Firebrick
  class Server
    # What wakes the thread of an attachment: a bell that its worker rings, and orders.
    class Pipes
      # Where the bell is rung.
      attr_reader :ring

      def initialize
        @bell, @ring = IO.pipe
        @orders, @order = IO.pipe
      end

      # Takes no lock, so it may be called in a trap.
      def order(what)
        @order.write_nonblock(what, exception: false)
      rescue IOError, SystemCallError
        # There is nobody any more to obey.
        nil
      end

      # Waits for one of these, for +control+, or for some seconds; yields `:bell`, the orders as text, `:control`.
      # Whether there was something.
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
