# frozen_string_literal: true

module Firebrick
  class Server
    # The end of a conversation, whichever side has ended it: stops the parts that still run.
    module Ending
      # Seconds that killed threads have to end.
      GRACE = 2.0

      private

      def finish
        status = end_front
        end_worker
        note_end(status) if status && !status.success?
        @addresses.empty? ? decline : @puma_rb&.stopped
      ensure
        @addresses = []
        # A thread that does not end still uses these.
        close unless @worker
      end

      def decline
        @started << (@error || Error.new("the server was stopped before it listened"))
      end

      def end_front
        # The front may be about to send the reason for its end.
        hear_last
        @control&.close
        @front.wait(@unheard ? 0 : [Front::GRACE, shutdown].min)
      end

      def hear_last
        @control&.receive&.each do |verb, arguments,|
          @error ||= Front.error(arguments.first) if verb == Wire::Order::FAILED
        end
      rescue IOError, SystemCallError
        nil
      end

      # Records that the front has failed or was killed.
      def note_end(status)
        remove_files
        return if @error || @stopped

        @error = Error.new("the server has ended: #{@front.describe(status)}")
        Report.log("firebrick: #{@error.message}") unless @addresses.empty?
      end

      def remove_files
        @settings&.unlink.to_a.each { |path| File.unlink(path) if File.exist?(path) }
      end

      def end_worker
        return unless @worker

        @worker.kill
        limit = now + GRACE
        until @worker.tend
          return if now > limit

          sleep 0.002
        end
        @worker = nil
      end

      def close
        [@control, @pipes, @scoreboard].each { |one| one&.close }
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
