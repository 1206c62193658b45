# frozen_string_literal: true

module Firebrick
  class Template
    # When memory runs out, the kernel is to take a worker rather than the front.
    module OomScore
      # Added to the score by which the kernel chooses.
      OOM_SCORE = 500

      private

      # Workers, and what they start, inherit it.
      def offer_to_the_kernel
        own = Integer(File.read("/proc/self/oom_score_adj"))
        File.write("/proc/self/oom_score_adj", [own + OOM_SCORE, 1000].min.to_s)
      rescue SystemCallError, ArgumentError
        # No Linux, or not permitted.
        nil
      end
    end
  end
end
