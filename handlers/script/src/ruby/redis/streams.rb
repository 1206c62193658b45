# Stream commands. Entries are pairs of id and fields.
class Redis
  module Commands
    def xadd(key, entry, approximate: nil, maxlen: nil, minid: nil, nomkstream: nil, id: '*')
      words = [:XADD, key]
      words << :NOMKSTREAM if nomkstream
      words << :MAXLEN << (approximate ? '~' : '=') << maxlen if maxlen
      words << :MINID << (approximate ? '~' : '=') << minid if minid
      run(nil, *words, id, entry)
    end

    def xrange(key, from = '-', to = '+', count: nil)
      run(:entries, :XRANGE, key, from, to, *(count ? [:COUNT, count] : []))
    end

    def xrevrange(key, to = '+', from = '-', count: nil)
      run(:entries, :XREVRANGE, key, to, from, *(count ? [:COUNT, count] : []))
    end

    # `block` in milliseconds; 0 waits without limit.
    def xread(keys, ids, count: nil, block: nil)
      words = [:XREAD]
      words << :COUNT << count if count
      streams(words, keys, ids, block)
    end

    def xreadgroup(group, consumer, keys, ids, count: nil, block: nil, noack: nil)
      words = [:XREADGROUP, :GROUP, group, consumer]
      words << :COUNT << count if count
      words << :NOACK if noack
      streams(words, keys, ids, block)
    end

    def xgroup(action, key, group, *words, mkstream: false)
      run(nil, :XGROUP, action, key, group, *words, *(mkstream ? [:MKSTREAM] : []))
    end

    # Without a range a summary; with one each entry that has not been acknowledged.
    def xpending(key, group, *range, idle: nil)
      words = [:XPENDING, key, group]
      words << :IDLE << idle if idle
      run(range.empty? ? :pending : :pending_entries, *words, *range)
    end

    def xclaim(key, group, consumer, idle, *ids, **options)
      words = [:XCLAIM, key, group, consumer, idle, *ids.flatten]
      options.each do |name, value|
        if %i[force justid].include?(name)
          words << name.to_s.upcase if value
        else
          words << name.to_s.upcase << value
        end
      end
      run(options[:justid] ? nil : :entries, *words)
    end

    def xautoclaim(key, group, consumer, idle, from, count: nil, justid: false)
      words = [:XAUTOCLAIM, key, group, consumer, idle, from]
      words << :COUNT << count if count
      words << :JUSTID if justid
      run(justid ? :claimed_ids : :claimed, *words)
    end

    # `xinfo(:stream, key)` returns a Hash; for groups and consumers an Array of Hashes.
    def xinfo(what, key, group = nil)
      run(what.to_s.downcase == 'stream' ? :hash : :hashes, :XINFO, what, key, *(group ? [group] : []))
    end

    def xtrim(key, length, approximate: false, strategy: 'MAXLEN')
      run(nil, :XTRIM, key, strategy, *(approximate ? ['~'] : []), length)
    end

    private

    def streams(words, keys, ids, milliseconds)
      words << :BLOCK << milliseconds if milliseconds
      words << :STREAMS << keys << ids
      return run(:streams, *words) || {} unless milliseconds
      block(:streams, milliseconds / 1000.0, *words) || {}
    end
  end
end
