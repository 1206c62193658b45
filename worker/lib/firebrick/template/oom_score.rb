# frozen_string_literal: true

module Firebrick
  class Template
    # Makes the kernel prefer a worker over the front when memory runs out.
    module OomScore
      # Added to the score by which the kernel chooses.
      OOM_SCORE = 500

      private

      # Workers, and processes that they start, inherit the score.
      def offer_to_the_kernel
        own = Integer(File.read("/proc/self/oom_score_adj"))
        File.write("/proc/self/oom_score_adj", [own + OOM_SCORE, 1000].min.to_s)
      rescue SystemCallError, ArgumentError
        # Not Linux, or not permitted.
        nil
      end
    end
  end
end
