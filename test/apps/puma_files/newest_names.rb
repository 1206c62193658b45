single { tag "alone" }
cluster { tag "many" } #=> read
workers 2
before_worker_boot(:counter) { |index, data| data[:index] = index } #=> hook
before_worker_shutdown(:counter) { |index, data| data[:index] == index } #=> hook
before_worker_fork { |index| index } #=> hook
after_worker_fork { |index| index } #=> hook
after_worker_shutdown { |handle| handle.index } #=> hook
before_thread_start { Thread.current.name ||= "web" } #=> hook
after_booted { nil } #=> beside the workers
after_stopped { nil } #=> beside the workers
before_restart { nil } #=> beside the workers
max_io_threads 2 #=> ignored
fiber_per_request #=> ignored
max_keep_alive 100 #=> limits.max_requests_per_connection = 100
allow_underscore_headers #=> rack.allow_underscore_headers = true
