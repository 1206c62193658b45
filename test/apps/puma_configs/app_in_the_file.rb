# no_rackup: true
# check: mapped: what is served
app do |env|
  [200, { "content-type" => "text/plain" }, ["hello from #{env['PATH_INFO']}\n"]]
end
port 3000
