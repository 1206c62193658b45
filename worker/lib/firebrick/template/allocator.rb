# frozen_string_literal: true

module Firebrick
  class Template
    # The allocator of the Ruby processes (`rack.allocator`). The front chose it when it started this process, by
    # LD_PRELOAD.
    module Allocator
      class << self
        # Restores the environment with which the server was started, for programs that the app starts.
        def restore_environment
          before = ENV.delete("FIREBRICK_LD_PRELOAD")
          @chosen = !before.nil?
          ENV["LD_PRELOAD"] = (before unless before.empty?) if @chosen
        end

        # Returns a fact for `booted`: why jemalloc is not used, if it is configured.
        def facts(wanted)
          return [] if wanted != "jemalloc" || @chosen

          [[Wire::Booted::NOTE,
            "jemalloc is not used, although rack.allocator is \"jemalloc\": libjemalloc.so.2 was not found or cannot " \
            "be loaded; install it (apt-get install libjemalloc2)"]]
        end
      end
    end
  end
end
