# check: ignored: there are no debug messages
# check: ignored: the front waits for sockets
# check: ignored: there is one kind of thread
# check: ignored: a reload replaces the youngest
debug
quiet
fiber_per_request
max_io_threads 2
extra_runtime_dependencies ["rack"]
io_selector_backend :epoll
mutate_stdout_and_stderr_to_sync_on_write false
shutdown_debug true, on_force: true
silence_fork_callback_warning
worker_culling_strategy :oldest
raise_exception_on_sigterm false
clear_binds!
bind "tcp://127.0.0.1:3000?low_latency=true"
