# frozen_string_literal: true

module Firebrick
  class Heap
    # Writes lines of JSON about a dump into its pipe. The gem json is not used: the app may want another version
    # of it.
    class Lines
      def initialize(pipe)
        @pipe = pipe
        @pipe.sync = true
      end

      # Tells a number, a text or true. Begins a line, because a dump may have been cut within one.
      def tell(name, value)
        write("\n{\"#{name}\":#{value.is_a?(String) ? quoted(value) : value}}\n")
      end

      # Tells the figures of Ruby's heap and of malloc.
      def tell_figures(name)
        pairs = heap.merge(malloc).map { |key, value| "\"#{key}\":#{value}" }
        write("{\"#{name}\":{#{pairs.join(',')}}}\n")
      end

      private

      def heap
        stat = GC.stat
        page = GC::INTERNAL_CONSTANTS.fetch(:HEAP_PAGE_SIZE, 65_536)
        { pages_bytes: stat[:heap_allocated_pages] * page, live_slots: stat[:heap_live_slots],
          free_slots: stat[:heap_free_slots], traced: Tracing.on? }
      end

      def malloc
        allocator, held, used = Native.malloc_figures
        allocator ? { allocator: quoted(allocator), malloc_held: held, malloc_used: used } : {}
      end

      def quoted(text)
        clean = text.dup.force_encoding(Encoding::UTF_8).scrub("?")
        %("#{clean.gsub(/["\\\u0000-\u001f]/) { |one| format('\\u%04x', one.ord) }}")
      end

      def write(text)
        @pipe.write(text)
      rescue SystemCallError, IOError
        # The front no longer reads.
        nil
      end
    end
  end
end
