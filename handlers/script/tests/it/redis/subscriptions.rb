redis = Redis.new(url: "unix://#{SOCKET}")
seen = []
listener = task do
  redis.subscribe('news', 'end') do |on|
    on.subscribe { |channel, count| seen << [:on, channel, count] }
    on.message do |channel, message|
      sleep 0.005
      seen << [channel, message]
      redis.unsubscribe if channel == 'end'
    end
    on.unsubscribe { |channel, count| seen << [:off, channel, count] }
  end
  :over
end
sleep 0.1
check 1, redis.publish('news', 'one')
redis.publish('news', 'two')
redis.publish('end', 'x')
check :over, listener.join
check [[:on, 'news', 1], [:on, 'end', 2], %w[news one], %w[news two], %w[end x]], seen[0, 5]
check [:off, 0], [seen[-1][0], seen[-1][2]]
check false, redis.subscribed?

found = []
patterns = task do
  redis.psubscribe('user.*') do |on|
    on.pmessage do |pattern, channel, message|
      found << [pattern, channel, message]
      redis.punsubscribe('user.*') if message == 'last'
    end
  end
end
sleep 0.1
redis.publish('user.1', 'first')
redis.publish('user.2', 'last')
patterns.join
check [%w[user.* user.1 first], %w[user.* user.2 last]], found
check nil, redis.subscribe_with_timeout(0.05, 'silence') { |on| on.message { |_, _| raise 'none is sent' } }
fails(KeyError) { redis.subscribe('a') { |_| raise KeyError, 'x' } }
fails(ArgumentError) { redis.subscribe('a') }

# More messages than are buffered for a slow block: none is lost.
count = 0
slow = task do
  redis.subscribe('flood') do |on|
    on.message { |_, message| count += 1; sleep 0.01 if count % 500 == 0; redis.unsubscribe if message == 'last' }
  end
end
sleep 0.1
10.times { redis.pipelined { |pipe| 500.times { |number| pipe.publish('flood', number) } } }
redis.publish('flood', 'last')
slow.join
check 5001, count
# A subscription raises when its server goes down.
lost = task { redis.subscribe('x') { |on| on.message { |_, _| nil } } }
sleep 0.1
redis.call(:CLIENT, :KILL, :TYPE, :pubsub)
fails(Redis::ConnectionError) { lost.join }
check '', redis.client_list.split("\n").select { |line| line.include?('flags=P') }.join
