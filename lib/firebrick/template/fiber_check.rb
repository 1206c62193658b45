# frozen_string_literal: true

require "firebrick/errors"
require "firebrick/template/fiber_libraries"

module Firebrick
  class Template
    # Whether the libraries of an app get along with requests on fibers. Asked when the app is loaded: what would mix
    # the requests up is refused, all else is told.
    class FiberCheck
      # @param app [#call] what the server serves
      # @param fibers [Integer] of each thread; 0 while they are off
      # @param threads [Integer] of each worker
      # @param apart [Boolean] whether one more thread has the fibers, and these threads none
      def initialize(app, fibers, threads, apart:)
        @fibers = fibers
        @libraries = FiberLibraries.new(app, fibers, threads, apart: apart)
      end

      # Facts for `booted`, with fibers and without: who has none asks whether to have some.
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
