# frozen_string_literal: true

require "firebrick/public_files"
require "firebrick/template/connection_pool"
require "firebrick/template/hub_facts"
require "firebrick/template/middleware"

module Firebrick
  class Template
    # The part of the boot that finds the app, applies a puma.rb, and collects facts for the front.
    module Configured
      # Sets what depends on the pool of a worker: the env of its requests, and how long its queries may take.
      def serve_in(pool)
        pool.apply(base)
        limits = @settings.fetch(Key::WORKER_MS, []).to_h { |line| line.split(" ", 2).reverse }
        milliseconds = Integer(limits.fetch(pool.name, 0))
        StatementTimeout.seconds = milliseconds.positive? ? milliseconds / 1000.0 : nil
      end

      private

      # Returns the app as it serves requests of clients.
      def limited(app)
        mode = one(Key::STATEMENT, "")
        mode.empty? ? app : StatementTimeout.wrap(app, mode)
      end

      def puma_file
        PumaFile.current if Firebrick.const_defined?(:PumaFile, false)
      end

      # Runs before the app is loaded.
      def apply_puma_file
        return unless puma_file

        Compat::PumaStats.socket = one(Key::CONTROL, "")
        puma_file.redirect_output
        puma_file.install
      end

      # Returns the options of Native.prepare.
      def options
        keys = [Key::THREADS_MIN, Key::THREADS_MAX, Key::FIBERS, Key::SLICE_US, Key::BLOCKING_US,
                Key::MAX_HEAD, Key::RESPONSE_MEMORY, Key::RESPONSE_SPOOL]
        keys.to_h { |key| [key.to_sym, Integer(one(key))] }
            .merge(temp_dir: one(Key::TEMP_DIR), rack3: Rack.release.to_i >= 3)
      end

      # Returns facts about the app with this Ruby. Raises if the app cannot be served so.
      def facts_of_the_app
        fibers = FiberCheck.new(@app, *numbers(Key::FIBERS, Key::THREADS_MAX))
        [*Yjit.apply(one(Key::YJIT, "off")), [Wire::Booted::RACK, Rack.release]] + fibers.facts +
          Allocator.facts(one(Key::ALLOCATOR, "system")) + PublicFiles.facts(@app) + ConnectionPool.facts + notes
      end

      # Returns remarks on what the app and the front both do.
      def notes
        compression + HubFacts.facts(path: hub, rpc: @settings.fetch(Key::HUB_RPC, []).last)
      end

      # Returns the path of the socket on which the app publishes; nil without a hub.
      def hub
        @settings.fetch(Key::HUB, []).last
      end

      DEFLATER = "Rack::Deflater"

      # Reports that the app itself does the front's work.
      def compression
        return [] unless one(Key::COMPRESSION, "0") == "1" && Middleware.new(@app).uses?(DEFLATER)

        [[Wire::Booted::NOTE, "#{DEFLATER} compresses responses inside of Ruby's lock; remove it from the " \
                              "middleware, and the server compresses them (docs/compression.md)"]]
      end

      # A puma.rb may define the app itself.
      def find_app
        return rackup_app unless puma_file

        puma_file.wrap(one(Key::APP).end_with?(".rb") ? puma_file.app : rackup_app)
      end

      def rackup_app
        # Rack 2 would load a command line parser, for options in a comment of the file: 12 ms, and they are not used.
        without_options = Rack::Builder.method(:parse_file).parameters.assoc(:opt) ? [nil] : []
        result = Rack::Builder.parse_file(one(Key::APP), *without_options)
        result.is_a?(Array) ? result.first : result
      end
    end
  end
end
