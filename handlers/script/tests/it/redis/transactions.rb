redis = Redis.new(path: SOCKET)
held = nil
replies = redis.pipelined do |pipe|
  pipe.set('a', 1)
  held = pipe.incr('a')
  fails(Redis::FutureNotReady) { held.value }
  pipe.hset('h', 'k', 'v')
  pipe.hgetall('h')
  pipe.sismember('s', 'x')
  pipe.get('none')
end
check ['OK', 2, 1, { 'k' => 'v' }, false, nil], replies
check 2, held.value
check [], redis.pipelined { |_| nil }
fails(Redis::WrongTypeError) { redis.pipelined { |pipe| pipe.lpush('a', 1); pipe.set('after', 1) } }
check '1', redis.get('after')
replies = redis.pipelined(exception: false) { |pipe| pipe.lpush('a', 1); pipe.get('a') }
check [Redis::WrongTypeError, String], replies.map { |reply| reply.class }

check ['OK', 2, 2.0], redis.multi { |tx| tx.set('a', 1); tx.incr('a'); tx.incrbyfloat('f', 2) }
check [], redis.multi { |_| nil }
fails(KeyError) { redis.multi { |tx| tx.set('a', 'never'); raise KeyError, 'stop' } }
check '2', redis.get('a')
fails(Redis::WrongTypeError) { redis.multi { |tx| tx.lpush('a', 1); tx.set('done', 1) } }
check '1', redis.get('done')
check true, fails(Redis::CommandError) { redis.multi { |tx| tx.set('a', 'never'); tx.call(:NONSENSE) } }.include?('unknown command')
check '2', redis.get('a')
check true, fails(TypeError) { redis.multi { |tx| tx.set('a', 'never'); tx.set('b', nil) } }.include?('nil')
check '2', redis.get('a')
check 'PONG', redis.ping

other = Redis.new(path: SOCKET, db: 0, timeout: 4)
check(['OK'], redis.watch('a') { redis.multi { |tx| tx.set('a', redis.get('a').to_i + 1) } })
check '3', redis.get('a')
check(nil, redis.watch('a') { |client| other.set('a', 'changed'); client.multi { |tx| tx.set('a', 'lost') } })
check 'changed', redis.get('a')
check('changed', redis.watch('a') { redis.get('a') })
check(['OK'], redis.watch('a') { redis.watch('b') { redis.multi { |tx| tx.set('a', 5) } } })
fails(KeyError) { redis.watch('a') { raise KeyError, 'stop' } }
fails(ArgumentError) { redis.watch('a') }
# Commands of another task on the same client do not use the connection of the watch.
check(nil, redis.watch('a') { task { redis.set('a', 'by a task') }.join; redis.multi { |tx| tx.set('a', 'lost') } })
check 'by a task', redis.get('a')
# After the connection was lost nothing is watched: a new one must not replace it.
lost = fails(Redis::ConnectionError) do
  redis.watch('a') do |client|
    own = other.client(:list).find { |one| one['watch'] == '1' || one['cmd'] == 'watch' }
    other.call(:CLIENT, :KILL, :ID, own['id'])
    sleep 0.05
    client.multi { |tx| tx.set('a', 'unwatched') }
  end
end
check true, lost.include?('was lost')
check 'by a task', redis.get('a')
check(['OK'], redis.watch('a') { redis.multi { |tx| tx.set('a', 'watched again') } })
# A counter without INCR: each increment counts once.
redis.set('count', 0)
tasks = (1..16).map do
  task do
    4.times do
      until redis.watch('count') { |c| n = c.get('count').to_i; c.multi { |tx| tx.set('count', n + 1) } }
        sleep 0.001
      end
    end
  end
end
tasks.each { |one| one.join }
check '64', redis.get('count')
# Connections of watches are given back.
check true, redis.client_list.split("\n").size <= 20
