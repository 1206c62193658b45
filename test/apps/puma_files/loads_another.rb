load File.expand_path("puma/shared.rb", __dir__) #=> read
set_default_host "127.0.0.1" #=> read
port 9292 #=> host = 127.0.0.1
