# frozen_string_literal: true

module Firebrick
  module Fibers
    # `Thread.handle_interrupt` and `Thread.pending_interrupt?` for a fiber. Ruby supports them for threads only.
    module Masking
      # The class methods of `Thread`.
      module OfClass
        def handle_interrupt(*rules, &block)
          return super unless block && rules.length == 1 && Fibers.here?

          Interrupts.here.within(rules.first, &block)
        end

        def pending_interrupt?(*kind)
          super || (Fibers.here? && Interrupts.here.pending?(*kind))
        end
      end

      def self.prepended(threads)
        super
        threads.singleton_class.prepend(OfClass)
      end

      def pending_interrupt?(*kind)
        super || (equal?(Thread.current) && Fibers.here? && Interrupts.here.pending?(*kind))
      end
    end
  end
end
