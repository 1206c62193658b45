require "json"

app do |env| #=> mapped
  [200, { "content-type" => "application/json" }, [JSON.generate(path: env["PATH_INFO"])]]
end
tag File.basename(__dir__) #=> tag = config
