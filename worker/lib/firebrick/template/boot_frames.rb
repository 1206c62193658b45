# frozen_string_literal: true

require "firebrick/app_frames"

module Firebrick
  class Template
    # The description of an app that cannot be loaded.
    module BootFrames
      # Added to errors of encodings, if no locale is set: systemd and containers often set none.
      LOCALE = "Ruby reads files as US-ASCII, because no locale is set (LC_ALL, LC_CTYPE, LANG): set LANG=C.UTF-8"
      private_constant :LOCALE

      class << self
        # Describes an exception raised while the app was loading.
        def explain(error)
          frames = AppFrames.new(Dir.pwd)
          return exited(error, frames) if error.is_a?(SystemExit)

          require "firebrick/report"
          source = syntax_source(error)
          text = Report.text(error) { |lines| source ? source.indented + frames.of(lines) : frames.with_source(lines) }
          locale?(error) ? "#{text.chomp}\n#{LOCALE}\n" : text
        end

        private

        def exited(error, frames)
          text = frames.of(error.backtrace).join("\n    ")
          "the app called exit (#{error.status}) while it was loading\n    #{text}"
        end

        # A file with a mistake is named by the message only. The messages of Ruby 3.4 have the source already.
        def syntax_source(error)
          return unless error.is_a?(SyntaxError) && !error.message.include?(" | ")

          SourceExcerpt.of(error.message, Dir.pwd)
        end

        def locale?(error)
          Encoding.default_external == Encoding::US_ASCII && error.message.b.include?("US-ASCII")
        end
      end
    end
  end
end
