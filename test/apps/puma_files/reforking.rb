workers 2
fork_worker 500 #=> rack.refork_after = 500
on_refork { GC.start } #=> hook
out_of_band { GC.start } #=> hook
max_fast_inline 10 #=> limits.max_requests_per_connection = 10
clean_thread_locals #=> ignored
worker_culling_strategy :oldest #=> ignored
idle_timeout nil
