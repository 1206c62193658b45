workers 2
preload_app!

embedded = nil

on_worker_boot do
  if defined?(Sidekiq)
    embedded = Sidekiq.configure_embed do |config|
      config.queues = %w[critical default low]
      config.concurrency = 2
    end
    embedded.run
  end
end

on_worker_shutdown do
  embedded&.stop
end
