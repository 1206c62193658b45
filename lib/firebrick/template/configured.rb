# frozen_string_literal: true

require "firebrick/public_files"

module Firebrick
  class Template
    # Of the boot: which app it is, what a puma.rb has said, if there is one, and what the front is told.
    module Configured
      private

      def puma_file
        PumaFile.current if Firebrick.const_defined?(:PumaFile, false)
      end

      # Before the app is loaded.
      def apply_puma_file
        return unless puma_file

        Compat::PumaStats.socket = one("control", "")
        puma_file.redirect_output
        puma_file.install
      end

      def limits
        [*numbers("max_head", "response_memory", "response_spool"), one("temp_dir")]
      end

      # What the app has become with this Ruby; it may have to be refused.
      def facts_of_the_app
        fibers = FiberCheck.new(@app, *numbers("fibers", "threads_max"), apart: flag?("fiber_paths"))
        [*Yjit.apply(one("yjit", "off")), ["rack", Rack.release]] + fibers.facts +
          Allocator.facts(one("allocator", "system")) + PublicFiles.facts(@app)
      end

      # A puma.rb can be the app itself.
      def find_app
        return rackup_app unless puma_file

        puma_file.wrap(one("app").end_with?(".rb") ? puma_file.app : rackup_app)
      end

      def rackup_app
        result = Rack::Builder.parse_file(one("app"))
        result.is_a?(Array) ? result.first : result
      end
    end
  end
end
