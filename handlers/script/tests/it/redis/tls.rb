ours = { ca_file: "#{FOLDER}/ca.pem", cert: "#{FOLDER}/client.pem", key: "#{FOLDER}/client.key" }
redis = Redis.new(url: "rediss://127.0.0.1:#{PORT}/1", ssl_params: ours)
check 'OK', redis.set('where', 'in TLS')
check nil, Redis.new(path: SOCKET).get('where')
check 'in TLS', Redis.new(path: SOCKET, db: 1).get('where')
# More than one TLS record in both directions.
check 'x' * 200_000, redis.echo('x' * 200_000)
tasks = (1..32).map { |number| task { redis.echo("mine #{number}") } }
check (1..32).map { |number| "mine #{number}" }, tasks.map { |one| one.join }
heard = task { redis.subscribe('news') { |on| on.message { |_, text| redis.unsubscribe; check 'hello', text } }; :heard }
sleep 0.1
redis.publish('news', 'hello')
check :heard, heard.join
# All of that on one connection; that of the subscription has been closed.
sleep 0.05
check 1, redis.client(:list).map { |one| one['laddr'] }.select { |address| address == "127.0.0.1:#{PORT}" }.size
check 'in TLS', Redis.new(host: 'localhost', port: PORT, ssl: true, db: 1, ssl_params: ours).get('where')
promises = H2O::Redis.new(url: "rediss://127.0.0.1:#{PORT}/1", ssl_params: ours)
check 'in TLS', promises.get('where').join

# Unknown client certificate, unknown server certificate, and a server without TLS.
nobody = Redis.new(url: "rediss://127.0.0.1:#{PORT}", ssl_params: { ca_file: "#{FOLDER}/ca.pem" }, timeout: 2)
fails(Redis::BaseConnectionError) { nobody.ping }
Redis.new(path: SOCKET).config_set('tls-auth-clients', 'no')
known = nil
50.times { known ||= begin; nobody.ping; rescue Redis::BaseConnectionError; sleep 0.02; nil; end }
check 'PONG', known
check true, fails(Redis::CannotConnectError) { Redis.new(url: "rediss://127.0.0.1:#{PORT}").ping }.include?('certificate')
check true, fails(Redis::CannotConnectError) { Redis.new(url: "rediss://127.0.0.2:#{PORT}", ssl_params: ours).ping }.include?('127.0.0.2')
missing = fails(Redis::CannotConnectError) { Redis.new(url: "rediss://127.0.0.1:#{PORT}", ssl_params: { ca_file: '/nowhere.pem' }).ping }
check true, missing.include?('ca_file /nowhere.pem')
foreign = ours.merge(key: "#{FOLDER}/server.key")
unfit = fails(Redis::CannotConnectError) { Redis.new(url: "rediss://127.0.0.1:#{PORT}", ssl_params: foreign).ping }
check true, unfit.include?("cert #{FOLDER}/client.pem: #{FOLDER}/server.key is not its key")
keyless = fails(Redis::CannotConnectError) { Redis.new(url: "rediss://127.0.0.1:#{PORT}", ssl_params: ours.merge(key: "#{FOLDER}/ca.pem")).ping }
check true, keyless.include?("key #{FOLDER}/ca.pem: contains no unencrypted private key")
plain = Redis.new(host: '127.0.0.1', port: PORT, timeout: 2)
fails(Redis::BaseConnectionError) { plain.ping }
