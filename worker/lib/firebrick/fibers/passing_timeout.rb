# frozen_string_literal: true

module Firebrick
  module Fibers
    # Bypasses rack-timeout for a request on a fiber: it raises on the thread, where it would end another request. The
    # bypass is logged once.
    module PassingTimeout
      @told = false

      class << self
        def tell
          return if @told

          @told = true
          Report.log("firebrick: #{Exchange.name}: rack-timeout is passed by for requests on fibers, because it " \
                     "would end others: timeouts.worker ends what takes too long")
        end
      end

      def call(env)
        return super unless Fibers.here?

        PassingTimeout.tell
        @app.call(env)
      end
    end
  end
end
