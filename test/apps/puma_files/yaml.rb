require "yaml"

SERVER = YAML.safe_load(File.read(File.join(__dir__, "server.yml"))).freeze unless defined?(SERVER)

workers SERVER.fetch("workers") #=> workers = 2
threads(*SERVER.fetch("threads")) #=> threads = 2:4
bind "tcp://#{SERVER.dig('listen', 'host')}:#{SERVER.dig('listen', 'port')}"
SERVER.fetch("hooks").each { |name| public_send(name) { nil } }
