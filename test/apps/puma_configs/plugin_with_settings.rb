# plugin: tuned
# check: timeouts.header = 7
plugin :tuned
