# frozen_string_literal: true

require "fiddle"

# Calls C code that waits without releasing the GVL: the CPU is idle, but only processes help, not threads.
USLEEP = Fiddle::Function.new(Fiddle::Handle::DEFAULT["usleep"], [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)

run(lambda do |_env|
  USLEEP.call(10_000)
  [200, { "content-type" => "text/plain" }, ["held\n"]]
end)
