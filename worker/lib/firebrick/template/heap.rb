# frozen_string_literal: true

module Firebrick
  class Template
    # Prepares objects before a fork: pages that are not written to afterwards stay shared.
    module Heap
      module_function

      def tidy(compact:)
        scan_strings
        3.times { GC.start }
        GC.compact if compact && GC.respond_to?(:compact)
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
