# frozen_string_literal: true

module Firebrick
  class Template
    # The part of the boot that makes requests of its own.
    module OwnRequests
      # The longest time that a new worker sends requests to itself.
      WORKER_SECONDS = 0.5
      # The part of `timeouts.worker_boot` after which no request is repeated.
      BOOT_SHARE = 0.8

      private

      # Requests the paths of `rack.warmup`, and repeats requests of clients. Returns facts for `booted`.
      def warm_up
        request_paths(@settings.fetch(Key::WARMUP, []))
        text = repeat_requests(@settings.fetch(Key::WARM, []))
        text ? [[Wire::Booted::WARMED, text]] : []
      end

      def request_paths(paths)
        return if paths.empty?

        require "firebrick/template/warmup"
        Warmup.new(@app, @base).run(paths)
      end

      def repeat_requests(requests)
        return if requests.empty?

        require "firebrick/template/warm_up"
        warm_up = WarmUp.new(@app, @base, requests, anyway: flag?(Key::WARM_ANYWAY))
        # The last hook: the app's own come first.
        Firebrick.after_fork { warm_up.run_once(WORKER_SECONDS) }
        warm_up.run(warm_seconds, &@warming)
      end

      # Returns how long requests may be repeated. The template has to be ready within `timeouts.worker_boot`, which has
      # begun shortly before this process has.
      def warm_seconds
        wanted = Integer(one(Yjit.enabled? ? Key::WARM_COMPILED_MS : Key::WARM_MS))
        left = (Integer(one(Key::BOOT_MS)) * BOOT_SHARE).to_i - (now - @started)
        [wanted, left].min / 1e3
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
