# Checks.
def same(wanted, found, what = '')
  raise "#{what}: wanted #{wanted.inspect}, found #{found.inspect}" unless wanted == found
end

def raises(kind, message)
  yield
rescue Exception => e
  return if e.is_a?(kind) && e.message.include?(message)
  raise "wanted #{kind} with #{message.inspect}, found #{e.class} with #{e.message.inspect}"
else
  raise "wanted #{kind} with #{message.inspect}, found none"
end

def env(more = {})
  { 'REQUEST_METHOD' => 'GET', 'PATH_INFO' => '/', 'REMOTE_ADDR' => '192.0.2.1', 'rack.errors' => Rt::ERRORS }.merge(more)
end
