# frozen_string_literal: true

module Firebrick
  module Fibers
    # `Dir.chdir { }` changes the directory of the process. While a fiber inside such a block waits, the loop restores
    # the previous one (worker/native/src/fibers/directory.rs), so it must know which fibers are inside such blocks.
    module Directory
      # `Dir` itself has these methods; since Ruby 3.3 its objects have one, too.
      METHODS = { Dir.singleton_class => %i[chdir fchdir], Dir => %i[chdir] }.freeze

      def self.extend_ruby
        return if @extended

        @extended = true
        METHODS.each do |owner, names|
          names = names.select { |name| owner.method_defined?(name) }
          owner.prepend(telling(names)) unless names.empty?
        end
      end

      def self.telling(names)
        Module.new do
          names.each do |name|
            define_method(name) do |*arguments, &block|
              next super(*arguments, &block) unless block && Fibers.here?

              Directory.within { super(*arguments, &block) }
            end
          end
        end
      end
      private_class_method :telling

      def self.within
        Native.fiber_chdir(true)
        yield
      ensure
        Native.fiber_chdir(false)
      end
    end
  end
end
