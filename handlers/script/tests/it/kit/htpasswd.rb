guard = Htpasswd.new("#{FOLDER}/people", 'Members "only"')
basic = lambda { |pair| "Basic #{[pair].pack('m').delete("\n")}" }
of = lambda { |pair, path = '/'| guard.call(env('HTTP_AUTHORIZATION' => basic.call(pair), 'PATH_INFO' => path)) }

status, headers, = guard.call(env)
same 401, status
same 'Basic realm="Members \"only\"", charset="UTF-8"', headers['www-authenticate']
same [399, { 'x-fallthru-set-remote-user' => 'ann' }, []], of.call('ann:secret')
2.times { same 'bob', of.call('bob:correct horse')[1]['x-fallthru-set-remote-user'] }
same [401, 401, 401], ['ann:Secret', 'bob:secret', 'cy:secret'].map { |pair| of.call(pair)[0] }
same 401, guard.call(env('HTTP_AUTHORIZATION' => 'Bearer x'))[0]
same 401, guard.call(env('HTTP_AUTHORIZATION' => ''))[0]
same [404, 404], ['/.htpasswd', '/a/.htaccess'].map { |path| of.call('ann:secret', path)[0] }

raises(ArgumentError, '/nowhere: No such file') { Htpasswd.new("#{FOLDER}/nowhere") }
raises(ArgumentError, '/wrong:1: the password of "ann" is not a supported hash') { Htpasswd.new("#{FOLDER}/wrong") }
