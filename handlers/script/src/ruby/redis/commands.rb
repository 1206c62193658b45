# Redis commands as methods, with the options and types of redis-rb. Commands whose replies need no conversion are not listed: the
# server knows their names (`method_missing`).
class Redis
  module Commands
    # Each of these is `def name(*words) = run(kind, :NAME, *words)`.
    KINDS = {
      nil => %w[
        mget append decr decrby exists getrange getset getdel hdel hget hincrby hkeys hlen hmget hset hvals incr incrby
        lindex llen lpop lpush lrange lrem lset ltrim mset publish rpop rpush scard sdiff setrange sinter smembers strlen
        sunion ttl pttl type zcard zcount zrank zrevrank
      ],
      'bool' => %w[
        setnx persist move renamenx msetnx hexists hsetnx sismember smove pfadd
      ],
      'bools' => %w[smismember],
      'float' => %w[incrbyfloat hincrbyfloat zincrby zscore],
      'floats' => %w[zmscore],
      'hash' => %w[hgetall],
      'time' => %w[time]
    }.freeze

    code = KINDS.flat_map do |kind, names|
      names.map { |name| "def #{name}(*words) run(#{kind ? ":#{kind}" : 'nil'}, :#{name.upcase}, *words) end\n" }
    end
    code += %w[expire expireat pexpire pexpireat].map do |name|
      "def #{name}(key, time, **condition) run(:bool, :#{name.upcase}, key, time, *flags(condition, :nx, :xx, :gt, :lt)) end\n"
    end
    eval("module ::Redis::Commands\n#{code.join}end", nil, 'firebrick/redis/commands.rb')

    def method_missing(name, *words, &block)
      command = Rt.call(Rt::REDIS_NAMED, name)
      return super unless command
      run(nil, *command, *words)
    end

    def respond_to_missing?(name, all = false)
      Rt.call(Rt::REDIS_NAMED, name) ? true : false
    end

    def set(key, value, ex: nil, px: nil, exat: nil, pxat: nil, nx: false, xx: false, keepttl: false, get: false)
      return run(nil, :SET, key, value) unless ex || px || exat || pxat || nx || xx || keepttl || get
      words = [:SET, key, value]
      words << :EX << ex if ex
      words << :PX << px if px
      words << :EXAT << exat if exat
      words << :PXAT << pxat if pxat
      words << :NX if nx
      words << :XX if xx
      words << :KEEPTTL if keepttl
      words << :GET if get
      run((nx || xx) && !get ? :ok_or_false : nil, *words)
    end

    def setex(key, seconds, value)
      run(nil, :SETEX, key, seconds, value)
    end

    def psetex(key, milliseconds, value)
      run(nil, :PSETEX, key, milliseconds, value)
    end

    def getex(key, ex: nil, px: nil, exat: nil, pxat: nil, persist: false)
      words = [:GETEX, key]
      words << :EX << ex if ex
      words << :PX << px if px
      words << :EXAT << exat if exat
      words << :PXAT << pxat if pxat
      words << :PERSIST if persist
      run(nil, *words)
    end

    def hexists?(key, field)
      hexists(key, field)
    end

    # Number of the keys that exist; `exists?` returns whether any does.
    def exists?(*keys)
      run(:bool_any, :EXISTS, *keys)
    end

    def del(*keys)
      keys.flatten!
      keys.empty? ? 0 : run(nil, :DEL, *keys)
    end

    def unlink(*keys)
      keys.flatten!
      keys.empty? ? 0 : run(nil, :UNLINK, *keys)
    end

    def copy(from, to, db: nil, replace: false)
      words = [:COPY, from, to]
      words << :DB << db if db
      words << :REPLACE if replace
      run(:bool, *words)
    end

    # Takes what `dump` returns.
    def restore(key, milliseconds, dumped, replace: false, idle_time: nil, frequency: nil)
      words = [:RESTORE, key, milliseconds, dumped]
      words << :REPLACE if replace
      words << :IDLETIME << idle_time if idle_time
      words << :FREQ << frequency if frequency
      run(nil, *words)
    end

    def keys(pattern = '*')
      run(nil, :KEYS, pattern)
    end

    def ping(*words)
      run(nil, :PING, *words)
    end

    def info(*sections)
      run(sections[0].to_s == 'commandstats' ? :commandstats : :info, :INFO, *sections)
    end

    # `client(:list)` returns Hashes.
    def client(action, *words)
      run(action.to_s.downcase == 'list' ? :clients : nil, :CLIENT, action, *words)
    end

    def mapped_mget(*keys)
      keys.flatten!
      run([:mapped, keys], :MGET, *keys)
    end

    def mapped_hmget(key, *fields)
      fields.flatten!
      run([:mapped, fields], :HMGET, key, *fields)
    end

    def mapped_mset(pairs)
      run(nil, :MSET, pairs)
    end

    def mapped_msetnx(pairs)
      run(:bool, :MSETNX, pairs)
    end

    def mapped_hmset(key, pairs)
      run(nil, :HMSET, key, pairs)
    end

    def hrandfield(key, count = nil, with_values: false, withvalues: false)
      return run(nil, :HRANDFIELD, key) unless count
      pairs = with_values || withvalues
      run(pairs ? :pairs : nil, :HRANDFIELD, key, count, *(pairs ? [:WITHVALUES] : []))
    end

    # One step of a scan: the next cursor ("0" at the end), and the elements.
    def scan(cursor, **options)
      run(:scan, :SCAN, cursor, *narrowed(options))
    end

    def sscan(key, cursor, **options)
      run(:scan, :SSCAN, key, cursor, *narrowed(options))
    end

    def hscan(key, cursor, **options)
      run(:hscan, :HSCAN, key, cursor, *narrowed(options))
    end

    def zscan(key, cursor, **options)
      run(:zscan, :ZSCAN, key, cursor, *narrowed(options))
    end

    def scan_each(**options, &block)
      every(block) { |cursor| scan(cursor, **options) }
    end

    def sscan_each(key, **options, &block)
      every(block) { |cursor| sscan(key, cursor, **options) }
    end

    def hscan_each(key, **options, &block)
      every(block) { |cursor| hscan(key, cursor, **options) }
    end

    def zscan_each(key, **options, &block)
      every(block) { |cursor| zscan(key, cursor, **options) }
    end

    def eval(script, *args)
      script_words(:EVAL, script, args)
    end

    def evalsha(digest, *args)
      script_words(:EVALSHA, digest, args)
    end

    # `script(:load, source)`, `script(:exists, digest)`, as in redis-rb.
    def script(action, *words)
      many = words[0].is_a?(Array)
      kind = action.to_s.downcase == 'exists' ? (many ? :bools : :bools_first) : nil
      run(kind, :SCRIPT, action, *words)
    end

    def config(action, *words)
      run(action.to_s.downcase == 'get' ? :hash : nil, :CONFIG, action, *words)
    end

    def pfmerge(destination, *sources)
      run(:ok, :PFMERGE, destination, *sources)
    end

    def geodist(key, one, other, unit = 'm')
      run(nil, :GEODIST, key, one, other, unit)
    end

    # `options` such as :WITHDIST.
    def georadius(key, *words, sort: nil, count: nil, options: nil)
      run(nil, :GEORADIUS, key, *words, *near(sort, count, options))
    end

    def georadiusbymember(key, *words, sort: nil, count: nil, options: nil)
      run(nil, :GEORADIUSBYMEMBER, key, *words, *near(sort, count, options))
    end

    def sort(key, by: nil, limit: nil, get: nil, order: nil, store: nil)
      words = [:SORT, key]
      words << :BY << by if by
      words << :LIMIT << limit if limit
      patterns = [get].flatten.compact
      patterns.each { |pattern| words << :GET << pattern }
      words.concat(order.split(' ')) if order
      words << :STORE << store if store
      run(patterns.size > 1 && !store ? [:slices, patterns.size] : nil, *words)
    end

    def blpop(*keys, timeout: 0)
      keys, timeout = with_timeout(keys, timeout)
      block(nil, timeout, :BLPOP, *keys, timeout)
    end

    def brpop(*keys, timeout: 0)
      keys, timeout = with_timeout(keys, timeout)
      block(nil, timeout, :BRPOP, *keys, timeout)
    end

    def brpoplpush(from, to, timeout: 0)
      block(nil, timeout, :BRPOPLPUSH, from, to, timeout)
    end

    def blmove(from, to, side, other, timeout: 0)
      block(nil, timeout, :BLMOVE, from, to, side, other, timeout)
    end

    def bzpopmin(*keys, timeout: 0)
      keys, timeout = with_timeout(keys, timeout)
      block(:popped, timeout, :BZPOPMIN, *keys, timeout)
    end

    def bzpopmax(*keys, timeout: 0)
      keys, timeout = with_timeout(keys, timeout)
      block(:popped, timeout, :BZPOPMAX, *keys, timeout)
    end

    # `timeout` in milliseconds.
    def wait(replicas, timeout)
      block(nil, timeout / 1000.0, :WAIT, replicas, timeout)
    end

    def monitor
      raise UnavailableCommandError, 'MONITOR cannot be used in handlers; use redis-cli monitor'
    end

    private

    # Flags: `nx: true` is NX.
    def flags(given, *known)
      given.each_key do |name|
        raise ArgumentError, "unknown option #{name}:; known are #{known.join(', ')}" unless known.include?(name)
      end
      given.select { |_, value| value }.keys.map { |name| name.to_s.delete('_').upcase }
    end

    def near(sort, count, options)
      words = [options].flatten.compact
      words << sort if sort
      words << :COUNT << count if count
      words
    end

    def narrowed(options)
      words = []
      options.each do |name, value|
        unless %i[match count type].include?(name)
          raise ArgumentError, "unknown option #{name}: of a scan; known are match, count and type"
        end
        words << name.to_s.upcase << value if value
      end
      words
    end

    def every(block)
      found = []
      cursor = '0'
      while true
        cursor, part = yield(cursor)
        block ? part.each(&block) : found.concat(part)
        return block ? nil : found.each if cursor == '0'
      end
    end

    def with_timeout(keys, timeout)
      last = keys[-1]
      return [keys[0...-1], last] if last.is_a?(Numeric)
      return [keys[0...-1], last[:timeout] || 0] if last.is_a?(Hash)
      [keys, timeout || 0]
    end

    # (script, keys, argv) or (script, keys: [...], argv: [...])
    def script_words(command, script, args)
      keys, argv = args
      keys, argv = keys[:keys], keys[:argv] if keys.is_a?(Hash)
      keys ||= []
      run(nil, command, script, keys.size, keys, argv || [])
    end
  end
end
