# frozen_string_literal: true

# Made from server/ground/settings/src/puma/methods.rs by `FIREBRICK_REGENERATE=1 cargo test -p settings puma`.

module Firebrick
  class PumaFile
    # The methods of Puma's DSL that need no code of their own.
    module Methods
      # They set an option of their name to their argument.
      SETTERS = %i[
        environment directory pidfile state_path state_permission tag worker_timeout worker_boot_timeout
        worker_shutdown_timeout persistent_timeout first_data_timeout max_keep_alive max_fast_inline
        http_content_length_limit supported_http_methods restart_command max_io_threads io_selector_backend
        worker_check_interval worker_culling_strategy idle_timeout custom_logger
      ].freeze

      # The same, with a default.
      OPTIONAL = {
        log_requests: true, early_hints: true, force_shutdown_after: :forever, enable_keep_alives: true,
        allow_underscore_headers: true, fork_worker: 1000, rack_url_scheme: nil, preload_app!: true,
        bind_to_activated_sockets: true, drain_on_shutdown: true, queue_requests: true,
        wait_for_less_busy_worker: 0.005, mutate_stdout_and_stderr_to_sync_on_write: true, nakayoshi_fork: true,
        prune_bundler: true, extra_runtime_dependencies: [], daemonize: true, fiber_per_request: true,
        clean_thread_locals: true, raise_exception_on_sigterm: true
      }.freeze

      # They keep their blocks, under all their names.
      HOOKS = {
        out_of_band: [], before_fork: [], before_worker_boot: %i[on_worker_boot],
        before_worker_shutdown: %i[on_worker_shutdown], before_worker_fork: %i[on_worker_fork],
        after_worker_fork: %i[after_worker_boot], after_worker_shutdown: [], before_refork: %i[on_refork],
        before_thread_start: %i[on_thread_start], before_thread_exit: %i[on_thread_exit], after_booted: %i[on_booted],
        after_stopped: %i[on_stopped], before_restart: %i[on_restart], after_refork: []
      }.freeze
    end
  end
end
