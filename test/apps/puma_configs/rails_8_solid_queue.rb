# env: SOLID_QUEUE_IN_PUMA=1
# plugin: solid_queue
# check: beside the workers
# check: solid_queue_mode :async
# check: the setting of a plugin
threads_count = ENV.fetch("RAILS_MAX_THREADS", 3)
threads threads_count, threads_count
port ENV.fetch("PORT", 3000)
plugin :tmp_restart
plugin :solid_queue if ENV["SOLID_QUEUE_IN_PUMA"]
solid_queue_mode :async if ENV["SOLID_QUEUE_IN_PUMA"]
