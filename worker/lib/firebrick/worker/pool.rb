# frozen_string_literal: true

module Firebrick
  class Worker
    # The pool of a worker: its threads, the fibers of each (0: none), and its name (docs/internals/processes.md).
    Pool = Struct.new(:threads_min, :threads_max, :fibers, :name) do
      # Reads the words that follow the index in `fork`.
      def self.parse(*numbers, name)
        new(*numbers.map { |number| Integer(number) }, name)
      end

      # Returns the numbers, as Native.start takes them.
      def shape
        to_a.first(3)
      end

      # Returns the name for the process title.
      def label
        name unless name == "default"
      end

      # Sets what depends on the pool in the env that each request starts from.
      def apply(base)
        base["rack.multithread"] = shape.max > 1
      end
    end
  end
end
