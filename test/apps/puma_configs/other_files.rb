# check: threads = 6:6
# check: workers = 7
# check: config/shared.rb:1
# file: config/shared.rb threads 6, 6
load "config/shared.rb"
inject { workers get(:max_threads) + 1 }
set_default_host "127.0.0.1"
port 3000
tag "#{default_host}-#{get(:nothing, 'else')}"
