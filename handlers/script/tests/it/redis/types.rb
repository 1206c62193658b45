redis = Redis.new(path: SOCKET)
check 'OK', redis.set('a', 1)
check '1', redis.get('a')
check nil, redis['none']
redis['b'] = 'two'
check 'two', redis['b']
check 'OK', redis.set('t', 'x', ex: 100)
check true, (1..100).include?(redis.ttl('t'))
check true, redis.pttl('t') > 1000
check false, redis.set('a', 2, nx: true)
check true, redis.set('n', 2, nx: true)
check false, redis.set('nope', 2, xx: true)
check '1', redis.set('a', '3', get: true)
check 'OK', redis.setex('s', 10, 'v')
check 'OK', redis.psetex('s', 10_000, 'v')
check true, redis.setnx('new', 1)
check false, redis.setnx('new', 1)
check '3', redis.getset('a', '4')
check '4', redis.getdel('a')
check 1, redis.exists('b')
check 2, redis.exists('b', 't')
check true, redis.exists?('b')
check false, redis.exists?('none')
check true, redis.expire('b', 50)
check false, redis.expire('none', 50)
check true, redis.persist('b')
check(-1, redis.ttl('b'))
check 'string', redis.type('b')
check %w[b n new s t], redis.keys.sort
check %w[n new], redis.keys('n*').sort
check 0, redis.del
check 2, redis.del('n', ['new'])
check 1, redis.unlink('s')
check 1, redis.incr('i')
check 6, redis.incrby('i', 5)
check 5, redis.decr('i')
check 2, redis.decrby('i', 3)
check 2.5, redis.incrbyfloat('i', 0.5)
check 5, redis.append('b', 'xy')
check 5, redis.strlen('b')
check 'wo', redis.getrange('b', 1, 2)
check 5, redis.setrange('b', 0, 'T')
check 'OK', redis.mset('x', 1, 'y', 2)
check 'OK', redis.mapped_mset({ 'x' => 1, y: 2 })
check ['1', '2', nil], redis.mget('x', 'y', 'none')
check({ 'x' => '1', 'none' => nil }, redis.mapped_mget('x', 'none'))
check "a\0b\r\n\xff", (redis.set('bin', "a\0b\r\n\xff"); redis.get('bin'))

check 2, redis.hset('h', 'f', 1, 'g', 2)
check 1, redis.hset('h', { k: 'v' })
check '1', redis.hget('h', 'f')
check({ 'f' => '1', 'g' => '2', 'k' => 'v' }, redis.hgetall('h'))
check({}, redis.hgetall('none'))
check ['1', nil], redis.hmget('h', 'f', 'none')
check({ 'f' => '1' }, redis.mapped_hmget('h', 'f'))
check [true, true], [redis.hexists('h', 'f'), redis.hexists?('h', 'f')]
check false, redis.hsetnx('h', 'f', 1)
check 3, redis.hincrby('h', 'f', 2)
check 3.5, redis.hincrbyfloat('h', 'f', 0.5)
check %w[f g k], redis.hkeys('h')
check %w[3.5 2 v], redis.hvals('h')
check 3, redis.hlen('h')
check 1, redis.hdel('h', 'f')
check ['0', [%w[g 2], %w[k v]]], redis.hscan('h', 0)

check 3, redis.rpush('l', %w[a b c])
check 4, redis.lpush('l', 'z')
check %w[z a b c], redis.lrange('l', 0, -1)
check 'z', redis.lpop('l')
check %w[b c], redis.rpop('l', 2).reverse
check 'a', redis.lindex('l', 0)
check 2, redis.linsert('l', 'BEFORE', 'a', 'q')
check 'OK', redis.lset('l', 0, 'r')
check 1, redis.lrem('l', 0, 'r')
check 'OK', redis.ltrim('l', 0, 0)
check 1, redis.llen('l')
check 'a', redis.rpoplpush('l', 'm')
check nil, redis.lpop('l')
redis.rpush('l', 'v')
check %w[l v], redis.blpop('none', 'l', timeout: 1)
check nil, redis.brpop('l', timeout: 0.05)
late = task { redis.blpop('later', timeout: 5) }
sleep 0.05
redis.rpush('later', 'came')
check %w[later came], late.join

check 2, redis.sadd('set', %w[a b])
check true, redis.sadd?('set', 'c')
check false, redis.sadd?('set', 'c')
check true, redis.sismember('set', 'a')
check [true, false], redis.smismember('set', 'a', 'q')
check 3, redis.scard('set')
check %w[a b c], redis.smembers('set').sort
check 1, redis.srem('set', 'c')
check true, redis.smove('set', 'other', 'a')
check %w[a b], redis.sunion('set', 'other').sort
check 'b', redis.spop('set')
check [], redis.sinter('set', 'other')

check true, redis.zadd('z', 1.5, 'a')
check 2, redis.zadd('z', [[2, 'b'], [3, 'c']])
check 2.5, redis.zadd('z', 1, 'a', incr: true)
check 2.5, redis.zscore('z', 'a')
check nil, redis.zscore('z', 'none')
check [2.5, nil], redis.zmscore('z', 'a', 'none')
check 3.5, redis.zincrby('z', 1, 'a')
check %w[b c a], redis.zrange('z', 0, -1)
check [['b', 2.0], ['c', 3.0]], redis.zrange('z', 0, 1, with_scores: true)
check %w[a c], redis.zrevrange('z', 0, 1)
check %w[c], redis.zrangebyscore('z', '(2', 3)
check [['b', 2.0]], redis.zrangebyscore('z', '-inf', '+inf', limit: [0, 1], withscores: true)
check %w[a c b], redis.zrevrangebyscore('z', '+inf', '-inf')
check 0, redis.zrank('z', 'b')
check 3, redis.zcard('z')
check 2, redis.zcount('z', 2, 3)
check true, redis.zrem('z', 'b')
check 0, redis.zrem('z', ['b'])
check 1, redis.zunionstore('zu', %w[z none], weights: [2, 1]) - 1
check ['c', 6.0], redis.zpopmin('zu')
check [['a', 7.0]], redis.zpopmax('zu', 2)
check nil, redis.bzpopmin('zu', timeout: 0.05)
redis.zadd('inf', Float::INFINITY, 'm')
check Float::INFINITY, redis.zscore('inf', 'm')
check 1, redis.zremrangebyscore('z', 3, 3)

check ['k', 'v', '1'], redis.eval('return {KEYS[1], ARGV[1], tostring(#KEYS)}', ['k'], ['v'])
check 'v', redis.eval('return ARGV[1]', keys: [], argv: ['v'])
sha = redis.script(:load, 'return 7')
check 7, redis.evalsha(sha)
check true, redis.script(:exists, sha)
check [true, false], redis.script(:exists, [sha, 'x' * 40])
fails(Redis::NoScriptError) { redis.evalsha('0' * 40) }

check 'PONG', redis.ping
check 'hi', redis.echo('hi')
check 0, redis.publish('nobody', 'x')
check true, redis.info['redis_version'][0].to_i >= 7
check 2, redis.time.size
check 'maxmemory', redis.config(:get, 'maxmemory').keys[0]
check 'OK', redis.config_set('maxmemory', 0)
check ['maxmemory', '0'], redis.config_get('maxmemory')
check 'int', redis.object(:encoding, 'x')
check 2, redis.geoadd('g', 13.361389, 38.115556, 'Palermo', 15.087269, 37.502669, 'Catania')
check true, (166..167).include?(redis.geodist('g', 'Palermo', 'Catania', 'km').to_i)
check [String, String], redis.geopos('g', 'Palermo')[0].map { |number| number.class }
check true, redis.pfadd('pf', %w[a b])
check 2, redis.pfcount('pf')
check true, redis.pfmerge('pf2', 'pf')
id = redis.xadd('stream', { 'f' => 'v' })
check [[id, { 'f' => 'v' }]], redis.xrange('stream')
check({ 'stream' => [[id, { 'f' => 'v' }]] }, redis.xread('stream', '0'))
check({}, redis.xread('stream', '$', block: 50))
check 'OK', redis.xgroup(:create, 'stream', 'group', '0')
check({ 'stream' => [[id, { 'f' => 'v' }]] }, redis.xreadgroup('group', 'me', 'stream', '>', count: 1))
check 1, redis.xack('stream', 'group', id)
check 1, redis.xlen('stream')
redis.mset(*(1..50).flat_map { |number| ["scan#{number}", number] })
check 50, redis.scan_each(match: 'scan*').to_a.size
seen = 0
redis.scan_each(match: 'scan*', count: 7) { |key| seen += key[0, 4] == 'scan' ? 1 : 0 }
check 50, seen
check [['m', Float::INFINITY]], redis.zscan_each('inf').to_a
redis.rpush('numbers', [3, 1, 2])
check %w[1 2 3], redis.sort('numbers')
check %w[3 2], redis.sort('numbers', order: 'DESC', limit: [0, 2])
check true, redis.dbsize > 50
check 'ERR no', fails(Redis::CommandError) { redis.eval("return redis.error_reply('ERR no')") }
fails(Redis::WrongTypeError) { redis.lpush('b', 1) }
check true, fails(TypeError) { redis.set('a', nil) }.start_with?('nil cannot be an argument')
fails(NoMethodError) { redis.gett('a') }
check true, redis.respond_to?(:hrandfield)
check false, redis.respond_to?(:to_ary)
check true, fails(Redis::UnavailableCommandError) { redis.call(:MULTI) }.include?('multi {')
check true, fails(Redis::UnavailableCommandError) { redis.auth('x') }.include?('password')
check ['b'], redis.call('KEYS', 'b')
check [nil, [1, ['x']]], redis.call(:EVAL, 'return {false, {1, {"x"}}}', 0)

three = Redis.new(path: SOCKET, protocol: 3)
check({ 'g' => '2', 'k' => 'v' }, three.hgetall('h'))
check Float::INFINITY, three.zscore('inf', 'm')
check [['m', Float::INFINITY]], three.zrange('inf', 0, -1, with_scores: true)
check true, three.sismember('other', 'a')
check 'OK', redis.flushdb
check 'OK', redis.flushall
