# Commands of sets and sorted sets, and those that pop from the first non-empty key.
class Redis
  module Commands
    # Number of new members; `sadd?` returns whether there were any.
    def sadd(key, *members)
      run(nil, :SADD, key, *members)
    end

    def sadd?(key, *members)
      run(:bool_any, :SADD, key, *members)
    end

    def srem(key, *members)
      run(nil, :SREM, key, *members)
    end

    def srem?(key, *members)
      run(:bool_any, :SREM, key, *members)
    end

    def spop(key, count = nil)
      count ? run(nil, :SPOP, key, count) : run(nil, :SPOP, key)
    end

    def srandmember(key, count = nil)
      count ? run(nil, :SRANDMEMBER, key, count) : run(nil, :SRANDMEMBER, key)
    end

    def zadd(key, *members, nx: false, xx: false, lt: false, gt: false, ch: false, incr: false)
      words = [:ZADD, key]
      words << :NX if nx
      words << :XX if xx
      words << :LT if lt
      words << :GT if gt
      words << :CH if ch
      words << :INCR if incr
      # For one member a Boolean, as in redis-rb; for a list a count.
      kind = incr ? :float : members[0].is_a?(Array) ? nil : :bool
      run(kind, *words, *members)
    end

    def zrem(key, member)
      run(member.is_a?(Array) ? nil : :bool, :ZREM, key, member)
    end

    def zrange(key, from, to, with_scores: false, withscores: false, **ways)
      scored(ranged([:ZRANGE, key, from, to], ways), with_scores || withscores)
    end

    def zrangestore(destination, key, from, to, **ways)
      run(nil, *ranged([:ZRANGESTORE, destination, key, from, to], ways))
    end

    def zrangebylex(key, from, to, limit: nil)
      run(nil, :ZRANGEBYLEX, key, from, to, *(limit ? [:LIMIT, limit] : []))
    end

    def zrevrangebylex(key, from, to, limit: nil)
      run(nil, :ZREVRANGEBYLEX, key, from, to, *(limit ? [:LIMIT, limit] : []))
    end

    def zrandmember(key, count = nil, with_scores: false, withscores: false)
      return run(nil, :ZRANDMEMBER, key) unless count
      scored([:ZRANDMEMBER, key, count], with_scores || withscores)
    end

    def zrevrange(key, from, to, with_scores: false, withscores: false)
      scored([:ZREVRANGE, key, from, to], with_scores || withscores)
    end

    def zrangebyscore(key, from, to, with_scores: false, withscores: false, limit: nil)
      words = [:ZRANGEBYSCORE, key, from, to]
      words << :LIMIT << limit if limit
      scored(words, with_scores || withscores)
    end

    def zrevrangebyscore(key, from, to, with_scores: false, withscores: false, limit: nil)
      words = [:ZREVRANGEBYSCORE, key, from, to]
      words << :LIMIT << limit if limit
      scored(words, with_scores || withscores)
    end

    def zpopmin(key, count = nil)
      count ? run(:scores, :ZPOPMIN, key, count) : run(:score, :ZPOPMIN, key)
    end

    def zpopmax(key, count = nil)
      count ? run(:scores, :ZPOPMAX, key, count) : run(:score, :ZPOPMAX, key)
    end

    # Pops from the first key that is not empty: the key, and the elements.
    def lmpop(*keys, modifier: 'LEFT', count: nil)
      run(nil, :LMPOP, *several(keys, modifier, count))
    end

    def blmpop(seconds, *keys, modifier: 'LEFT', count: nil)
      block(nil, seconds, :BLMPOP, seconds, *several(keys, modifier, count))
    end

    def zmpop(*keys, modifier: 'MIN', count: nil)
      run(:popped_scores, :ZMPOP, *several(keys, modifier, count))
    end

    def bzmpop(seconds, *keys, modifier: 'MIN', count: nil)
      block(:popped_scores, seconds, :BZMPOP, seconds, *several(keys, modifier, count))
    end

    def zunionstore(destination, keys, weights: nil, aggregate: nil)
      run(nil, *combined([:ZUNIONSTORE, destination], keys, weights, aggregate))
    end

    def zinterstore(destination, keys, weights: nil, aggregate: nil)
      run(nil, *combined([:ZINTERSTORE, destination], keys, weights, aggregate))
    end

    def zdiffstore(destination, keys)
      run(nil, *combined([:ZDIFFSTORE, destination], keys, nil, nil))
    end

    def zunion(*keys, weights: nil, aggregate: nil, with_scores: false, withscores: false)
      scored(combined([:ZUNION], keys, weights, aggregate), with_scores || withscores)
    end

    def zinter(*keys, weights: nil, aggregate: nil, with_scores: false, withscores: false)
      scored(combined([:ZINTER], keys, weights, aggregate), with_scores || withscores)
    end

    def zdiff(*keys, with_scores: false, withscores: false)
      scored(combined([:ZDIFF], keys, nil, nil), with_scores || withscores)
    end

    private

    def scored(words, with_scores)
      with_scores ? run(:scores, *words, :WITHSCORES) : run(nil, *words)
    end

    def combined(words, keys, weights, aggregate)
      keys = keys.flatten
      words << keys.size << keys
      words << :WEIGHTS << weights if weights
      words << :AGGREGATE << aggregate if aggregate
      words
    end

    def several(keys, modifier, count)
      keys = keys.flatten
      [keys.size, keys, modifier, *(count ? [:COUNT, count] : [])]
    end

    # The options of ZRANGE, as in redis-rb and as in Redis.
    def ranged(words, ways)
      limit = ways.delete(:limit)
      words.concat(flags(ways, :byscore, :by_score, :bylex, :by_lex, :rev))
      words << :LIMIT << limit if limit
      words
    end
  end
end
