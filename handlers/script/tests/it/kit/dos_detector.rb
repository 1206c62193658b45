detector = DoSDetector.new(strategy: DoSDetector::CountingStrategy.new(period: 3_600, threshold: 3, ban_period: 7_200, name: 'one'))
same [399, 399, 403, 403], (1..4).map { detector.call(env)[0] }
same 399, detector.call(env('REMOTE_ADDR' => '192.0.2.2'))[0]
same 403, detector.call(env('REMOTE_ADDR' => '127.0.0.1', 'HTTP_X_FORWARDED_FOR' => '192.0.2.1'))[0]
same 399, detector.call(env('REMOTE_ADDR' => '192.0.2.9', 'HTTP_X_FORWARDED_FOR' => '192.0.2.1'))[0]

# Another front thread has another object, and the same counts.
twin = DoSDetector.new(strategy: DoSDetector::CountingStrategy.new(period: 3_600, threshold: 3, ban_period: 7_200, name: 'one'))
same 403, twin.call(env)[0]

telling = DoSDetector.new(
  strategy: DoSDetector::CountingStrategy.new(period: 3_600, threshold: 1, ban_period: 60, name: 'two'),
  callback: DoSDetector.fallthrough_callback
)
status, headers, = telling.call(env)
same [399, '192.0.2.1', '1'], [status, headers['x-fallthru-set-dos-ip'], headers['x-fallthru-set-dos-count']]
same true, headers['x-fallthru-set-dos-banned-until'].to_i > Time.now.to_i

class Picky
  def detect?(client, now, env)
    client[:seen] = (client[:seen] || 0) + 1
    [client[:seen] > 1 && now > 0 && env['REQUEST_METHOD'] == 'GET', client[:seen]]
  end
end
said = []
own = DoSDetector.new(strategy: Picky.new, callback: lambda { |_, detected, ip, seen| said << [detected, ip, seen]; [399, {}, []] })
2.times { own.call(env) }
same [[false, '192.0.2.1', 1], [true, '192.0.2.1', 2]], said

raises(ArgumentError, 'threshold') { DoSDetector::CountingStrategy.new(threshold: 0) }
raises(ArgumentError, 'strategy') { DoSDetector.new(strategy: nil) }

# `forwarded: false`: the address of the connection counts, and a callback may respond.
behind = DoSDetector.new(
  strategy: DoSDetector::CountingStrategy.new(period: 3_600, threshold: 2, ban_period: 60, name: 'three'), forwarded: false, cache_size: 2_048,
  callback: proc { |_, detected, ip| detected && !ip.start_with?('192.168.') ? [503, {}, ['Service Unavailable']] : [399, {}, []] }
)
forged = { 'REMOTE_ADDR' => '127.0.0.1', 'HTTP_X_FORWARDED_FOR' => '192.168.0.1' }
same [399, 503], (1..2).map { behind.call(env(forged))[0] }
