# frozen_string_literal: true

module Firebrick
  class Server
    # Closes the sockets of servers in each process that is forked from this one. Otherwise fronts would not notice the
    # end of the parent, and two processes would send responses.
    module ForkGuard
      @attachments = []
      @watching = false

      class << self
        def watch(attachment)
          Process.singleton_class.prepend(self) unless @watching
          @watching = true
          # A new Array each time: a fork may come at any moment.
          @attachments += [attachment]
        end

        def forget(attachment)
          @attachments -= [attachment]
        end

        def abandon_all
          Native.abandon
          @attachments.each(&:abandon)
          @attachments = []
        end
      end

      def _fork
        super.tap { |pid| ForkGuard.abandon_all if pid.zero? }
      end
    end
  end
end
