# frozen_string_literal: true

module Firebrick
  class Server
    # The settings that the front has read from options, variables and files: the arguments of its message `boot`.
    class Settings
      def initialize(arguments)
        @values = arguments.each_slice(2).group_by(&:first).transform_values { |pairs| pairs.map(&:last) }
      end

      def environment
        one("environment")
      end

      def development?
        environment == "development"
      end

      # Files to remove when the front cannot do it.
      def unlink
        @values.fetch("unlink", [])
      end

      # The setting for Ruby's compiler: `auto`, `on` or `off`.
      def yjit
        one("yjit")
      end

      # The version of docs/internals/wire.md that the front speaks.
      def wire
        one("wire")
      end

      # Seconds that requests have when the server is stopped.
      def shutdown
        number("shutdown_ms") / 1000.0
      end

      def threads
        [number("threads_min"), number("threads_max")]
      end

      # The number of descriptors that come with the message `fork`.
      def links
        number("links")
      end

      # The limits, in the order of Native.prepare.
      def limits
        [number("max_head"), number("response_memory"), number("response_spool"), one("temp_dir")]
      end

      def slot_len
        number("slot_len")
      end

      # The env that every request starts from.
      def env
        hints = one("early_hints") == "1"
        Environment.base(multithread: threads.last > 1, early_hints: hints, multiprocess: false,
                         sendfile: @values.fetch("sendfile", []))
                   .merge("firebrick.detailed_errors" => development?)
      end

      private

      def one(key)
        found = @values.fetch(key, []).last
        found || raise(Error, "the front did not say #{key}: gem and program are of different builds")
      end

      def number(key)
        Integer(one(key))
      end
    end
  end
end
