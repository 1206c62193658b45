# check: hook: runs in each worker after its last request
# check: hook: runs in each thread after its last request
# check: hook: runs in the process that becomes the next template
workers 2
on_worker_boot { |index| index }
on_worker_shutdown { |index| index }
on_worker_fork { |index| index }
after_worker_boot { |index| index }
on_thread_start { nil }
on_thread_exit { nil }
on_refork { nil }
on_booted { nil }
on_stopped { nil }
on_restart { nil }
clean_thread_locals
max_fast_inline 20
