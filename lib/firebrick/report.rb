# frozen_string_literal: true

module Firebrick
  # Exceptions as text, for the error log and the development page. Does not raise, even if methods of the exception do.
  module Report
    class << self
      def text(error, env = nil)
        lines = ["#{error.class}: #{message(error)}#{request_line(env)}"]
        lines.concat(backtrace(error).map { |line| "    #{line}" })
        lines << "  caused by #{text(error.cause)}" if error.cause
        clean(lines.join("\n"))
      rescue StandardError, SystemStackError => e
        "#{error.class} (its report failed: #{e.class})"
      end

      # Writes to standard error in one write, so that lines of several processes do not mix.
      def log(text)
        $stderr.write("#{clean(text).chomp}\n")
      rescue IOError, SystemCallError
        nil
      end

      private

      def message(error)
        clean(error.message.to_s)
      rescue StandardError => e
        "(its message failed: #{e.class})"
      end

      def backtrace(error)
        Array(error.backtrace).map(&:to_s)
      end

      def request_line(env)
        env && " (#{env['REQUEST_METHOD']} #{env['REQUEST_URI'] || env['PATH_INFO']})"
      end

      def clean(text)
        text.dup.force_encoding(Encoding::UTF_8).scrub("?")
      end
    end
  end
end
