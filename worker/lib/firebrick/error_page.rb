# frozen_string_literal: true

module Firebrick
  # The response after the app has raised: one line in production, the exception in development.
  module ErrorPage
    ESCAPES = { "&" => "&amp;", "<" => "&lt;", ">" => "&gt;", '"' => "&quot;", "'" => "&#39;" }.freeze

    class << self
      def response(error, env, detailed:)
        return plain("Internal Server Error\n") unless detailed && error
        return plain(Report.text(error, env)) unless env && env["HTTP_ACCEPT"]&.include?("text/html")

        [500, { "content-type" => "text/html; charset=utf-8" }, [html(error, env)]]
      end

      private

      def plain(text)
        [500, { "content-type" => "text/plain; charset=utf-8" }, [text]]
      end

      def html(error, env)
        title = escape("#{error.class} at #{env['REQUEST_METHOD']} #{env['PATH_INFO']}")
        <<~HTML
          <!DOCTYPE html>
          <html lang="en"><head><meta charset="utf-8"><title>#{title}</title>
          <style>body { font: 16px/1.5 sans-serif; margin: 2em } pre { overflow-x: auto }</style></head>
          <body><h1>#{title}</h1><pre>#{escape(Report.text(error, env))}</pre></body></html>
        HTML
      end

      def escape(text)
        text.gsub(/[&<>"']/, ESCAPES)
      end
    end
  end
end
