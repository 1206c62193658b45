workers 3
threads 1, 4
many = @config.options[:workers].to_i > 1 && @options[:workers] == get(:workers)
preload_app! if many #=> always so
tag "#{@config.options[:max_threads]}-#{@config.options.fetch(:workers)}-#{@config.environment}" #=> tag = "?4-3-
worker_timeout @config.options[:worker_timeout] #=> timeouts.worker = 60
new_enough = Gem::Version.new(Puma::Const::VERSION) >= Gem::Version.new("5.0")
first_data_timeout 30 if new_enough && Puma.respond_to?(:stats)
