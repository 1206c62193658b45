tcp = Redis.new(host: '127.0.0.1', port: PORT)
check false, tcp.connected?
check 'PONG', tcp.ping
check true, tcp.connected?
check 'PONG', Redis.new(url: "redis://127.0.0.1:#{PORT}").ping
check 'PONG', Redis.new("redis://localhost:#{PORT}/0").ping
check 'PONG', Redis.new(url: "unix://#{SOCKET}?db=1").ping
check 'PONG', Redis.new('127.0.0.1', PORT).ping
check 'PONG', Redis.new('127.0.0.1', PORT, 2).ping
check 'PONG', Hiredis.new(SOCKET, -1).ping
check 'PONG', Redis.new(SOCKET).ping
tcp.close
check 'PONG', tcp.reconnect.ping

tcp.set('where', 'zero')
two = Redis.new(host: '127.0.0.1', port: PORT, db: 2)
check nil, two.get('where')
two.set('where', 'two')
check 'zero', tcp.get('where')
two.select(0)
check 'zero', two.get('where')
bad = Redis.new(path: SOCKET, db: 99)
check true, fails(Redis::CommandError) { bad.set('where', 'wrong') }.include?('out of range')
check 'zero', tcp.get('where')

# Equal options share a connection: 64 tasks are one client in Redis's list.
tasks = (1..64).map { task { Redis.new(path: SOCKET).get('where') } }
check ['zero'], tasks.map { |one| one.join }.uniq

tcp.call(:ACL, :SETUSER, 'ann', 'on', '>pass:word', '~ann:*', '+@all', '-flushall')
ann = Redis.new(url: "redis://ann:pass%3Aword@127.0.0.1:#{PORT}")
check 'ann', ann.call(:ACL, :WHOAMI)
check 'OK', ann.set('ann:x', 1)
fails(Redis::PermissionError) { ann.set('x', 1) }
fails(Redis::PermissionError) { ann.flushall }
check 'ann', Redis.new(path: SOCKET, username: 'ann', password: 'pass:word', protocol: 3).call(:ACL, :WHOAMI)
wrong = Redis.new(path: SOCKET, username: 'ann', password: 'no')
check true, fails(Redis::CommandError) { wrong.get('ann:x') }.include?('WRONGPASS')
tcp.call(:CONFIG, :SET, 'requirepass', 'secret')
fails(Redis::CommandError) { Redis.new(path: SOCKET, timeout: 1).ping }
check 'PONG', Redis.new(path: SOCKET, password: 'secret').ping
check 'PONG', Redis.new(url: "redis://:secret@127.0.0.1:#{PORT}").ping
tcp.call(:CONFIG, :SET, 'requirepass', '')

# An overdue reply: commands behind it fail, too, and no other command gets it later.
impatient = Redis.new(path: SOCKET, timeout: 0.2)
check 'PONG', impatient.ping
begun = Time.now
slow = task { fails(Redis::TimeoutError) { impatient.call(:DEBUG, :SLEEP, 0.6) } }
sleep 0.1
behind = task { fails(Redis::ConnectionError) { impatient.echo('behind') } }
check true, slow.join.include?('command_timeout (0.2 s)')
check true, behind.join.include?('overdue')
check true, Time.now - begun < 0.55
sleep 0.6
check 'mine', impatient.echo('mine')

stuck = task { Redis.new(path: SOCKET).call(:DEBUG, :SLEEP, 0.6) }
sleep 0.1
said = fails(Redis::CommandTimeoutError) { impatient.subscribe('x') { |on| on.message { |_, _| nil } } }
check true, said.include?('command_timeout (0.2 s)')
stuck.join

# Commands that block have a dedicated connection.
blocked = task { impatient.blpop('none', timeout: 0.5) }
check 'PONG', impatient.ping
check nil, blocked.join

gone = Redis.new(port: 1)
check true, fails(Redis::CannotConnectError) { gone.ping }.include?('cannot connect to Redis on 127.0.0.1:1')
fails(Redis::CannotConnectError) { gone.ping }
fails(Redis::BaseConnectionError) { gone.multi { |tx| tx.ping } }
fails(Redis::BaseConnectionError) { gone.blpop('x', timeout: 1) }
fails(Redis::BaseConnectionError) { gone.subscribe('x') { |_| nil } }
fails(Redis::BaseConnectionError) { gone.watch('x') { nil } }
check true, fails(ArgumentError) { Redis.new(hots: 1) }.include?('unknown option `hots')
check true, fails(ArgumentError) { Redis.new(url: 'http://x') }.include?('redis://')
fails(Redis::BaseConnectionError) { Redis.new(url: "rediss://127.0.0.1:#{PORT}", timeout: 1).ping }
