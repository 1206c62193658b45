# The examples of H2O's documentation.
rules = H2O::ACL::Handler.new do
  allow { addr == '192.168.1.9' }
  deny { user_agent.include?('curl') && addr.start_with?('192.168.') }
  respond(503, { 'retry-after' => '9' }, ['Service Unavailable']) { addr == 'malicious' || header('X-Bad') == '1' }
  redirect('https://example.com/', 301) { path == '/moved' }
  use(lambda { |env| [200, {}, ["used #{env['PATH_INFO']}"]] }) { path.start_with?('/used') }
  deny { method == 'POST' }
end
of = lambda { |more = {}| rules.call(env(more)) }
same [399, {}, []], of.call
same 399, of.call('REMOTE_ADDR' => '192.168.1.9', 'HTTP_USER_AGENT' => 'curl')[0]
same [403, {}, ['Forbidden']], of.call('REMOTE_ADDR' => '192.168.1.8', 'HTTP_USER_AGENT' => 'curl/8')
same [503, { 'retry-after' => '9' }, ['Service Unavailable']], of.call('HTTP_X_BAD' => '1')
same [301, { 'Location' => 'https://example.com/' }, []], of.call('PATH_INFO' => '/moved')
same [200, {}, ['used /used/x']], of.call('PATH_INFO' => '/used/x')
same 403, of.call('REQUEST_METHOD' => 'POST')[0]
same 425, of.call('HTTP_EARLY_DATA' => '1')[0]

# A changed response does not affect the next one.
first = of.call('HTTP_X_BAD' => '1')
first[1]['x-own'] = '1'
same nil, of.call('HTTP_X_BAD' => '1')[1]['x-own']

# X-Forwarded-For is ignored from public addresses, used from private ones.
who = lambda { |peer, list| Rt.client(env('REMOTE_ADDR' => peer, 'HTTP_X_FORWARDED_FOR' => list)) }
same '192.0.2.1', who.call('192.0.2.1', '10.0.0.1')
same '198.51.100.7', who.call('10.0.0.1', '6.6.6.6, 198.51.100.7')
same '10.0.0.1', Rt.client(env('REMOTE_ADDR' => '10.0.0.1', 'HTTP_X_FORWARDED_FOR' => '1.1.1.1'), false)

raises(ArgumentError, 'block') { H2O::ACL::Handler.new }
raises(TypeError, 'call') { H2O::ACL::Handler.new { use(1) } }

# Rules that are not the last value of their file are an error.
number = Rt.load_app('acl { deny }', 'lone.rb')
same 403, Rt.apps[number].call(env)[0]
raises(RuntimeError, 'lost.rb: the acl is ignored') { Rt.load_app("acl { deny }\nlambda { |env| [200, {}, []] }", 'lost.rb') }
raises(RuntimeError, 'only once') { Rt.load_app("acl { deny }\nacl { deny }", 'twice.rb') }
