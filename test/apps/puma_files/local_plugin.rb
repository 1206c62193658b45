$LOAD_PATH.unshift File.expand_path("../lib", __dir__)
plugin :local_metrics #=> beside the workers
threads 1, 2
metrics_every 30 if respond_to?(:metrics_every)
