# frozen_string_literal: true

module Firebrick
  class Template
    # Prepares objects before a fork: pages that are not written to afterwards stay shared.
    module Heap
      module_function

      # An object is old when it has survived three collections: those of young objects do not write to it any more.
      # Two collections of young objects cost a tenth of two whole ones. The third is whole; compaction includes one.
      def tidy(compact:)
        scan_strings
        2.times { GC.start(full_mark: false) }
        compact && GC.respond_to?(:compact) ? GC.compact : GC.start
        Native.settle_heap
      end

      # Ruby records in a String whether its encoding is valid, when that is first needed. Each worker would do so in
      # its own copy.
      def scan_strings
        valid = String.instance_method(:valid_encoding?)
        ObjectSpace.each_object(String) { |string| valid.bind_call(string) }
      end
    end
  end
end
