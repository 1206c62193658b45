begin
  require "barnes"
rescue LoadError
  warn "no metrics of the runtime here" if ENV["VERBOSE"]
end

before_fork { Barnes.start if defined?(Barnes) }
on_booted { File.write("tmp/booted", Process.pid.to_s) } #=> beside the workers
on_thread_start { Thread.current[:started] = true } #=> hook
on_thread_exit { Thread.current[:started] = nil } #=> hook
