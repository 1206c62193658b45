# frozen_string_literal: true

require "firebrick/errors"
require "firebrick/template/fiber_libraries"

module Firebrick
  class Template
    # Checks whether the libraries of an app work with requests on fibers. Runs when the app is loaded. Libraries that
    # would mix requests up are refused; others are reported.
    class FiberCheck
      # @param app [#call] the app
      # @param fibers [Integer] the number per thread; 0 while they are off
      # @param threads [Integer] the number per worker
      def initialize(app, fibers, threads)
        @fibers = fibers
        @libraries = FiberLibraries.new(app, fibers, threads)
      end

      # Returns facts for `booted`, also when fibers are off: they help to decide whether to turn them on.
      #
      # @raise [Firebrick::Error] the app would mix requests up
      def facts
        found = @libraries.to_a
        if @fibers.positive?
          refuse(found.first.text) if found.first.verdict == "forbids"
          @libraries.guard
        end
        found.map(&:fact)
      end

      private

      def refuse(why)
        raise Error, "fibers = #{@fibers}: #{why}, or set fibers to \"off\" (docs/fibers.md)"
      end
    end
  end
end
