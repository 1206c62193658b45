# check: hook: runs in each thread before its first request
# check: hook: runs in the template before each fork
# check: ignored: a worker that has been reforked serves no more
# check: rack.refork_after = 500
# check: hook: runs between requests when a full garbage collection is due
workers 2
fork_worker 500
before_worker_boot(:db) { |index, data| data[:db] = index }
before_worker_shutdown(:db) { |_index, data| data.delete(:db) }
before_worker_fork { |index| index }
after_worker_fork { |index| index }
before_thread_start { |control| control }
before_thread_exit { nil }
before_refork { GC.compact }
after_refork { nil }
out_of_band { GC.start }
after_booted { puts "up" }
after_stopped { puts "down" }
before_restart { puts "again" }
lowlevel_error_handler ->(error, env, status) { [status, {}, ["#{error.class} #{env.class}"]] }
custom_logger Logger.new($stdout) if defined?(Logger)
