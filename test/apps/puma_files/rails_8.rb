# As `rails new` writes it today: few words, most of them from the environment.
threads_count = ENV.fetch("RAILS_MAX_THREADS", 3)
threads threads_count, threads_count #=> threads = 3:3

port ENV.fetch("PORT", 3000) #=> overruled|port = 3000

plugin :tmp_restart #=> always so
plugin :solid_queue if ENV["SOLID_QUEUE_IN_PUMA"]

pidfile ENV["PIDFILE"] if ENV["PIDFILE"]
