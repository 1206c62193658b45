# frozen_string_literal: true

require "firebrick/wire"

module Firebrick
  class Server
    Key = Wire::Boot

    # The settings that the front has read from options, variables and files: the arguments of its message `boot`.
    class Settings
      def initialize(arguments)
        @values = arguments.each_slice(2).group_by(&:first).transform_values { |pairs| pairs.map(&:last) }
      end

      def environment
        one(Key::ENVIRONMENT)
      end

      def development?
        environment == "development"
      end

      # Files to remove when the front cannot do it.
      def unlink
        @values.fetch(Key::UNLINK, [])
      end

      # The setting for Ruby's compiler: `auto`, `on` or `off`.
      def yjit
        one(Key::YJIT)
      end

      # The path of the socket on which the app publishes, and that at which AnyCable's gem answers; nil without them.
      def hub
        { path: @values.fetch(Key::HUB, []).last, rpc: @values.fetch(Key::HUB_RPC, []).last }
      end

      # The version of docs/internals/wire.md that the front speaks.
      def wire
        one(Key::WIRE)
      end

      # Seconds that requests have when the server is stopped.
      def shutdown
        number(Key::SHUTDOWN_MS) / 1000.0
      end

      # The number of descriptors that come with the message `fork`.
      def links
        number(Key::LINKS)
      end

      # The options of Native.attach.
      def options
        keys = [Key::THREADS_MIN, Key::THREADS_MAX, Key::MAX_HEAD, Key::RESPONSE_MEMORY, Key::RESPONSE_SPOOL]
        keys.to_h { |key| [key.to_sym, number(key)] }.merge(temp_dir: one(Key::TEMP_DIR))
      end

      def slot_len
        number(Key::SLOT_LEN)
      end

      # The env that every request starts from.
      def env
        hints = one(Key::EARLY_HINTS) == "1"
        Environment.base(multithread: number(Key::THREADS_MAX) > 1, early_hints: hints, multiprocess: false,
                         sendfile: @values.fetch(Key::SENDFILE, []))
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
