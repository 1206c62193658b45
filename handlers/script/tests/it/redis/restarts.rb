redis = Redis.new(path: SOCKET, timeout: 2)
promises = H2O::Redis.new(path: SOCKET, timeout: 2)
right = failed = 0
stop = false
recovered = 0
tasks = (1..64).map do |worker|
  task do
    turn = 0
    until stop
      turn += 1
      mine = "#{worker}-#{turn}"
      begin
        redis.set("key:#{worker}", mine)
        # Redis may have restarted in between, without its data.
        got = redis.get("key:#{worker}")
        raise "another's reply: #{got.inspect} instead of #{mine}" unless got == mine || got.nil?
        got = worker.even? ? redis.echo(mine) : promises.echo(mine).join
        raise "another's reply: #{got.inspect} instead of #{mine}" unless got == mine
        got = redis.multi { |tx| tx.echo(mine) } if worker % 8 == 0
        raise "another's reply: #{got.inspect} instead of #{mine}" unless got == mine || got == [mine]
        right += 1
      rescue Redis::BaseConnectionError, H2O::Redis::ConnectionError
        failed += 1
        sleep 0.005
      end
      sleep 0.001 if turn % 20 == 0
    end
    raise 'it does not recover' unless redis.echo("#{worker}") == "#{worker}"
    recovered += 1
  end
end
until stop
  begin
    stop = redis.get('stop') == '1'
  rescue Redis::BaseConnectionError
    nil
  end
  sleep 0.02
end
tasks.each { |one| one.join }
Rt.call(Rt::LOG, "right=#{right} failed=#{failed} recovered=#{recovered}")
