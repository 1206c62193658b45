redis = Redis.new(path: SOCKET)
tasks = (1..64).map do |worker|
  task do
    100.times do |turn|
      mine = "#{worker}-#{turn}"
      check mine, redis.echo(mine)
      redis.set("key:#{worker}", mine)
      check mine, redis.get("key:#{worker}")
      check([mine, nil, mine], redis.pipelined { |pipe| pipe.echo(mine); pipe.get('none'); pipe.get("key:#{worker}") })
      check(['OK', mine], redis.multi { |tx| tx.set("key:#{worker}", mine); tx.get("key:#{worker}") }) if turn % 10 == 0
      check "#{mine}#{'x' * 100_000}", redis.echo("#{mine}#{'x' * 100_000}") if turn % 50 == 0
    end
  end
end
tasks.each { |one| one.join }
check 1, redis.client_list.split("\n").size
