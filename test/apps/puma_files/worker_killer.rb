workers 2
before_fork do
  begin
    require "puma_worker_killer"

    PumaWorkerKiller.config do |config|
      config.ram           = 1024
      config.frequency     = 5
      config.rolling_restart_frequency = 12 * 3600
    end
    PumaWorkerKiller.start
  rescue LoadError
    nil
  end
end
worker_shutdown_timeout 8 #=> timeouts.shutdown = 8
worker_boot_timeout 120 #=> timeouts.worker_boot = 120
worker_check_interval 5 #=> ignored
