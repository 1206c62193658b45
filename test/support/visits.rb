# frozen_string_literal: true

# Requests for many paths, from several clients at a time.
module Visits
  # Sends one request for each of the paths; each has to be answered with 200.
  def visit_all(own, paths, clients:)
    waiting = Queue.new(paths)
    threads = Array.new(clients) do
      Thread.new do
        while (path = waiting.pop(true) rescue nil)
          assert_status 200, get(path, to: own)
        end
      end
    end
    threads.each(&:join)
  end

  # Sends requests for these paths, one client for each, until the block ends. Responses may have any framing, and workers may die.
  # pause:: seconds of a client after each
  def under_load(own, *paths, pause: 0)
    over = false
    clients = paths.map do |path|
      Thread.new do
        until over
          begin
            get(path, to: own)
            sleep pause if pause.positive?
          rescue SystemCallError, EOFError, Connection::Ended
            sleep 0.05
          end
        end
      end
    end
    yield
  ensure
    over = true
    clients&.each(&:join)
  end
end
