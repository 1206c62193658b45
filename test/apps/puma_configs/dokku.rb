# env: PORT=5000 RACK_ENV=production
# check: threads = 1:16
# check: workers = 1
# check: port = 5000
threads 0, Integer(ENV.fetch("MAX_THREADS", 16))
workers Integer(ENV.fetch("WEB_WORKERS", 0))
port Integer(ENV.fetch("PORT"))
environment ENV.fetch("RACK_ENV")
