# One file for laptops of all kinds.
on_windows = Gem.win_platform? || Puma.windows?
if on_windows || Puma.jruby? || !Puma.forkable? || Puma::IS_JRUBY || Puma::IS_WINDOWS || !Puma::HAS_FORK
  workers 0
  threads 4, 8
else
  workers 2
  silence_single_worker_warning #=> ignored
end
mutate_stdout_and_stderr_to_sync_on_write true #=> always so
io_selector_backend :auto #=> ignored
