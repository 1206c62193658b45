# check: port = 4567
# check: threads = 1:1
port 4567
threads 1
