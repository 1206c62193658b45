# frozen_string_literal: true

require "tempfile"

module Firebrick
  module Pure
    # A request whose body comes in frames. The body is written to a file, as if a descriptor had come.
    #
    # Contract: if the body cannot be stored, only its own request fails.
    class Upload
      attr_reader :job

      def initialize(job, length)
        @job = job
        @missing = length
        @file = Tempfile.create("firebrick-body", binmode: true)
        File.unlink(@file.path)
      rescue SystemCallError => e
        @job.error = e
      end

      # Adds bytes. Returns whether they were the last.
      def add(bytes)
        @missing -= bytes.bytesize
        raise Malformed, "INPUT of more than the body's length" if @missing.negative?

        keep(bytes)
        return false if @missing.positive?

        hand_over
        true
      end

      private

      def keep(bytes)
        @file.write(bytes) unless @job.error
      rescue SystemCallError => e
        @job.error = e
      end

      def hand_over
        @file&.rewind
        file = @file || File.open(File::NULL)
        file.autoclose = false
        @job.descriptor = file.fileno
      rescue SystemCallError => e
        @job.error ||= e
      end
    end
  end
end
