# frozen_string_literal: true

require "tempfile"

module Firebrick
  module Pure
    # A request whose body comes in frames: the body becomes a file, as if a descriptor had come.
    #
    # Contract: what cannot be kept is the request's error and nobody else's.
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

      # Whether this was the last of it.
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
