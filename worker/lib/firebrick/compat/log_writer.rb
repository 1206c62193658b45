# frozen_string_literal: true

module Firebrick
  module Compat
    # Stands in for `Puma::LogWriter`, with which plugins log.
    class LogWriter
      attr_reader :stdout, :stderr
      attr_accessor :formatter, :custom_logger

      def self.stdio(**)
        new($stdout, $stderr)
      end

      def initialize(stdout, stderr, **)
        @stdout = stdout
        @stderr = stderr
        @formatter = ->(text) { text }
      end

      def log(text)
        line = format(text)
        return @custom_logger.write(line) if @custom_logger.respond_to?(:write)

        write_to(@stdout, "#{line}\n")
      end

      def write(text)
        write_to(@stdout, format(text))
      end

      def format(text)
        @formatter.call(text)
      end

      def debug?
        ENV.key?("PUMA_DEBUG")
      end

      def debug(text = nil)
        log("% #{block_given? ? yield : text}") if debug?
      end

      # Logs an error and ends the process, as in Puma.
      def error(text)
        write_to(@stderr, "#{format("ERROR: #{text}")}\n")
        exit 1
      end

      def unknown_error(error, _request = nil, text = "Unknown error")
        write_to(@stderr, "#{format("#{text}: #{error.inspect}")}\n")
      end

      private

      def write_to(io, text)
        io.write(text)
        io.flush
      rescue SystemCallError, IOError
        # The reader of the pipe is gone.
        nil
      end
    end
  end
end
