# frozen_string_literal: true

# Faults of an app that the commands have to name: a query for each row, a function in C that keeps Ruby's lock, a lock, a leak, a request in
# thirty that is slow, and one that kills its worker. They stand in a controller of an app of Rails, beside an action without a fault.

module PlantedFaults
  CONTROLLER = <<~'RUBY'
    # frozen_string_literal: true

    class PlantedController < ApplicationController
      LOCK = Mutex.new
      KEPT = []
      BIG = "x" * 30_000_000
      COUNT = Queue.new

      def sound = render(plain: "sound")

      def rows
        render plain: ROWS # line of the query
      end

      def export
        render plain: Digest::SHA256.hexdigest(BIG) # line of the hash
      end

      def stock
        LOCK.synchronize { sleep 0.05 } # line of the lock
        render plain: "stock"
      end

      def cart
        KEPT << ("x" * 3_000) # line of the leak
        render plain: "cart"
      end

      def search
        COUNT << 1
        slow if (COUNT.size % 30).zero?
        render plain: "found"
      end

      def poison
        Process.kill(:SEGV, Process.pid) && sleep # line of the poison
      end

      private

      # Longer than any request waits for a processor on a busy machine.
      def slow
        sleep 1.5 # line of the slow request
      end
    end
  RUBY

  # Lines of a block of routes.
  ROUTES = CONTROLLER[/.*^ *private$/m].scan(/def (\w+)/).map { |(action)| "get \"planted/#{action}\" => \"planted##{action}\"\n" }.join

  # The controller's source. +rows+: an expression that makes a query for each of twenty rows.
  def self.controller(rows) = CONTROLLER.sub("ROWS", rows)

  # The number of the line with the mark.
  def self.line(mark) = CONTROLLER.lines.index { |text| text.include?("# line of the #{mark}\n") } + 1
end
