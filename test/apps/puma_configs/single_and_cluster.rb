# check: threads = 4:4
# check: workers = 2
# check: tag = many
# missing: tag = one
workers 2
threads 4, 4
single { tag "one" }
cluster do
  tag "many"
  preload_app! false
end
