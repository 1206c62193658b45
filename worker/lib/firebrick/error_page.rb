# frozen_string_literal: true

require "firebrick/app_frames"

module Firebrick
  # The response after the app has raised: one line in production, the exception in development.
  module ErrorPage
    ESCAPES = { "&" => "&amp;", "<" => "&lt;", ">" => "&gt;", '"' => "&quot;", "'" => "&#39;" }.freeze
    # The most causes that are shown.
    CAUSES = 5
    STYLE = <<~CSS
      :root { color-scheme: light dark }
      body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
      h1 { margin: 0 } h2 { font-size: 1.1rem; margin: 1.5rem 0 .5rem }
      .message { font-size: 1.2rem; white-space: pre-wrap; overflow-wrap: anywhere }
      pre { overflow-x: auto; padding: .75rem 1rem; border: 1px solid #8886; border-radius: .4rem }
      mark { background: #c224; color: inherit; display: block }
    CSS
    private_constant :CAUSES, :STYLE

    class << self
      def response(error, env, detailed:)
        return plain("Internal Server Error\n") unless detailed && error
        return plain(text(error, env)) unless env && env["HTTP_ACCEPT"]&.include?("text/html")

        [500, { "content-type" => "text/html; charset=utf-8" }, [html(error, env)]]
      end

      private

      def plain(text)
        [500, { "content-type" => "text/plain; charset=utf-8" }, [text]]
      end

      def text(error, env)
        frames = AppFrames.new(Dir.pwd)
        Report.text(error, env) { |lines| frames.with_source(lines) }
      end

      def html(error, env)
        title = escape("#{error.class} at #{env['REQUEST_METHOD']} #{env['PATH_INFO']}")
        <<~HTML
          <!DOCTYPE html>
          <html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>#{title}</title>
          <style>#{STYLE}</style></head>
          <body><h1>#{title}</h1>#{chain(error)}</body></html>
        HTML
      rescue StandardError, SystemStackError
        # The exception's own methods may raise.
        "<!DOCTYPE html><title>#{title}</title><pre>#{escape(Report.text(error, env))}</pre>"
      end

      # Returns the exception, and its causes with their classes.
      def chain(error)
        all = [error]
        all << all.last.cause while all.last.cause && all.length <= CAUSES
        first, *causes = all
        described(first) + causes.map { |one| "<h2>caused by #{escape(one.class.to_s)}</h2>#{described(one)}" }.join
      end

      def described(error)
        frames = AppFrames.new(Dir.pwd)
        [%(<p class="message">#{escape(error.message.to_s)}</p>), source(frames.excerpt(error.backtrace)),
         *listed(*frames.split(error.backtrace))].join
      end

      def listed(own, others)
        parts = []
        parts << "<h2>In the app</h2>#{pre(own)}" if own.any?
        parts << "<details><summary>Gems and Ruby: #{others.length}</summary>#{pre(others)}</details>" if others.any?
        parts
      end

      def pre(lines)
        "<pre>#{escape(lines.join("\n"))}</pre>"
      end

      def source(excerpt)
        return unless excerpt

        lines = excerpt.lines.map do |number, text, marked|
          line = escape("#{number.to_s.rjust(4)}  #{text}")
          marked ? "<mark>#{line}</mark>" : "#{line}\n"
        end
        "<pre>#{lines.join}</pre>"
      end

      def escape(text)
        text.dup.force_encoding(Encoding::UTF_8).scrub("?").gsub(/[&<>"']/, ESCAPES)
      end
    end
  end
end
