# frozen_string_literal: true

module Firebrick
  class Template
    # The part of the boot that makes requests of its own.
    module OwnRequests
      private

      def warm_up
        paths = @settings.fetch(Key::WARMUP, [])
        return if paths.empty?

        require "firebrick/template/warmup"
        Warmup.new(@app, @base).run(paths)
      end

      # Repeats requests for `firebrick deaths --replay`, whose only purpose this process is then.
      def replay
        wish = @settings.fetch(Key::REPLAY, []).last or return

        require "firebrick/worker"
        require "firebrick/template/replay"
        Replay.new(@app, @base, wish, @dir).run
      end
    end
  end
end
