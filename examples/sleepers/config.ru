# frozen_string_literal: true

# A hundred thousand requests asleep: each waits in straight-line code, on a fiber.
#
#   /          responds at once
#   /sleep/10  sleeps for that many seconds
#   /read/10   reads from a socket whose answer comes after that many seconds (LATE is the path of its server)
#   /hog/2     computes for that many seconds

require "socket"

text = { "content-type" => "text/plain" }
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }

run lambda { |env|
  _, verb, seconds = env["PATH_INFO"].split("/")
  case verb
  when "sleep" then sleep(seconds.to_f)
  when "read"
    UNIXSocket.open(ENV.fetch("LATE")) do |socket|
      socket.puts(seconds)
      socket.read
    end
  when "hog"
    over = now.call + seconds.to_f
    nil until now.call > over
  end
  [200, text, ["slept\n"]]
}
