# frozen_string_literal: true

module Firebrick
  class Server
    # A process that is forked from one with servers must keep none of their sockets: fronts would not notice that the
    # parent has ended, and two processes would send responses.
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
