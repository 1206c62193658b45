redis = H2O::Redis.new(host: '127.0.0.1', port: PORT)
check ['127.0.0.1', PORT, 0, 5, 5], [redis.host, redis.port, redis.db, redis.connect_timeout, redis.command_timeout]
check true, redis.disconnected?
commands = [redis.set('a', 1), redis.incr('a'), redis.get('a'), redis.get('none'), redis.hgetall('none')]
check ['OK', 2, '2', nil, []], commands.map { |command| command.join }
check '2', commands[2].join
check false, redis.disconnected?
error = fails(H2O::Redis::CommandError) { redis.lpush('a', 1).join }
check 'WRONGTYPE Operation against a key holding the wrong kind of value (command: LPUSH a 1)', error
begin
  redis.lpush('a', 1).join
rescue H2O::Redis::BaseError => e
  check %w[LPUSH a 1], e.command.words.map { |word| word.to_s }
end
check %w[maxmemory 0], redis.config_get('maxmemory').join
check 'PONG', redis.call(:PING).join
check true, redis.respond_to?(:zrangebyscore)
fails(NoMethodError) { redis.nonsense }
fails(H2O::Redis::UnavailableCommandError) { redis.monitor }

check ['OK', 3], redis.multi { redis.set('a', 2); check 'QUEUED', redis.incr('a').join }.join
fails(H2O::Redis::CommandError) { redis.multi { redis.lpush('a', 1) }.join }
fails(KeyError) { redis.multi { redis.set('a', 'never'); raise KeyError, 'x' } }
check '3', redis.get('a').join
redis.multi
redis.set('a', 4)
check ['OK'], redis.exec.join
check true, fails(H2O::Redis::CommandError) { redis.exec.join }.include?('EXEC without MULTI')
check(['OK'], redis.watch('a') { redis.multi { redis.set('a', 5) } }.join)
other = H2O::Redis.new(host: '127.0.0.1', port: PORT, timeout: 3)
aborted = fails(H2O::Redis::CommandError) { redis.watch('a') { other.set('a', 6).join; redis.multi { redis.set('a', 7) } }.join }
check true, aborted.include?('aborted')
check '6', redis.get('a').join

channel = redis.subscribe('one', 'two').join
redis.publish('one', 'hello').join
check %w[one hello], channel.shift
task { sleep 0.02; redis.publish('two', 'later') }
check %w[two later], channel.shift
patterns = redis.psubscribe('n.*').join
redis.publish('n.x', 'there')
check ['n.x', 'there', 'n.*'], patterns.shift
redis.unsubscribe
redis.punsubscribe
check [nil, nil], [channel.shift, patterns.shift]

# Promises that are never joined: memory stays flat, and later ones are right.
40_000.times { |number| redis.set('x', number) }
check '39999', redis.get('x').join
first = redis.get('x')
20_000.times { redis.ping }
redis.ping.join
fails(H2O::Redis::UnknownError) { first.join }
# Several tasks join the same promise.
slow = redis.call(:DEBUG, :SLEEP, 0.05)
check %w[OK OK OK], (1..3).map { task { slow.join } }.map { |one| one.join }
db = H2O::Redis.new(host: '127.0.0.1', port: PORT, db: 3)
check nil, db.get('a').join
db.db = 0
check '6', db.get('a').join
gone = H2O::Redis.new(host: '127.0.0.1', port: 1)
fails(H2O::Redis::ConnectionError) { gone.get('a').join }
impatient = H2O::Redis.new(host: '127.0.0.1', port: PORT, command_timeout: 0.1)
fails(H2O::Redis::CommandTimeoutError) { impatient.call(:DEBUG, :SLEEP, 0.3).join }
