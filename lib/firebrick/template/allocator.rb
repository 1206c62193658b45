# frozen_string_literal: true

module Firebrick
  class Template
    # The allocator of Ruby's processes (`rack.allocator`). The front has chosen it when it started this process, by
    # LD_PRELOAD.
    module Allocator
      MAPS = "/proc/self/maps"

      class << self
        # Programs that the app starts get the environment that the server was started with.
        def restore_environment
          before = ENV.delete("FIREBRICK_LD_PRELOAD") or return
          ENV["LD_PRELOAD"] = (before unless before.empty?)
        end

        # For `booted`: why jemalloc is not used, if it was asked for.
        def facts(wanted)
          return [] if wanted != "jemalloc" || jemalloc?

          [["note", "jemalloc is not used, although rack.allocator is \"jemalloc\": libjemalloc.so.2 was not found " \
                    "or cannot be loaded; install it (apt-get install libjemalloc2)"]]
        end

        private

        def jemalloc?
          File.foreach(MAPS).any? { |line| line.include?("/libjemalloc.so") }
        rescue SystemCallError
          # No Linux.
          false
        end
      end
    end
  end
end
