# frozen_string_literal: true

module Firebrick
  module Compat
    # `Puma.stats_hash`: the server's statistics in Puma's format, read over the control socket.
    class PumaStats
      # The methods of `Puma` itself.
      module Methods
        def stats_object=(object)
          @get_stats = object
        end

        def stats_hash
          @get_stats.stats
        end

        def stats
          require "json"
          JSON.generate(stats_hash)
        end

        # Called by plugins of the gem.
        def set_thread_name(name) # rubocop:disable Naming/AccessorMethodName
          Thread.current.name = "puma #{name}"
        end

        def deprecate_method_change(*)
          nil
        end

        # Predicates that configuration files use.
        def jruby?
          RUBY_ENGINE == "jruby"
        end

        def mri?
          RUBY_ENGINE == "ruby"
        end

        def windows?
          Gem.win_platform?
        end

        def osx?
          RUBY_PLATFORM.include?("darwin")
        end

        def forkable?
          Process.respond_to?(:fork)
        end

        def ssl?
          true
        end
      end

      class << self
        # The path of the control socket; nil when it is off.
        attr_accessor :socket
      end

      def stats
        path = self.class.socket
        raise "Puma.stats: the control socket is off" if path.nil? || path.empty?

        require "json"
        require "socket"
        JSON.parse(fetch(path), symbolize_names: true)
      end

      private

      def fetch(path)
        UNIXSocket.open(path) do |socket|
          socket.write("GET /puma/stats HTTP/1.0\r\nHost: localhost\r\n\r\n")
          head, body = socket.read.split("\r\n\r\n", 2)
          status = head.to_s.lines.first.to_s.strip
          raise "Puma.stats: the server answered #{status.inspect}" unless status.match?(%r{\AHTTP/1\.\d 200})

          body
        end
      end
    end
  end
end
