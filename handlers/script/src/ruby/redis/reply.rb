# Converts replies of Redis to the types of redis-rb.
class Redis
  module Reply
    class << self
      # Converts a reply by `kind`; exceptions are returned unchanged.
      def as(kind, reply)
        return reply if kind.nil? || reply.is_a?(Exception)
        return kind == :ok_or_false ? false : nil if reply.nil?
        kind.is_a?(Array) ? __send__(kind[0], reply, kind[1]) : __send__(kind, reply)
      end

      def bool(reply)
        reply == 1 || reply == true
      end

      def bool_any(reply)
        reply.is_a?(Integer) && reply > 0
      end

      def ok(reply)
        reply == 'OK'
      end
      alias ok_or_false ok

      def mapped(reply, names)
        pairs = {}
        names.each_with_index { |name, index| pairs[name] = reply[index] }
        pairs
      end

      def slices(reply, size)
        reply.each_slice(size).to_a
      end

      def float(reply)
        return reply unless reply.is_a?(String)
        case reply
        when 'inf' then Float::INFINITY
        when '-inf' then -Float::INFINITY
        else reply.to_f
        end
      end

      def bools(reply)
        reply.map { |one| bool(one) }
      end

      def bools_first(reply)
        bool(reply[0])
      end

      def floats(reply)
        reply && reply.map { |one| float(one) }
      end

      def hash(reply)
        return reply unless reply.is_a?(Array)
        pairs = {}
        index = 0
        while index < reply.size
          pairs[reply[index]] = reply[index + 1]
          index += 2
        end
        pairs
      end

      # Alternating members and scores, or (RESP3) pairs.
      def scores(reply)
        return reply unless reply.is_a?(Array)
        reply = reply.each_slice(2).to_a unless reply[0].is_a?(Array)
        reply.map { |member, score| [member, float(score)] }
      end

      def score(reply)
        scores(reply)[0]
      end

      # Key, member and score.
      def popped(reply)
        reply && [reply[0], reply[1], float(reply[2])]
      end

      def scan(reply)
        reply
      end

      def hscan(reply)
        [reply[0], reply[1].each_slice(2).to_a]
      end

      def zscan(reply)
        [reply[0], scores(reply[1])]
      end

      def popped_scores(reply)
        reply && [reply[0], scores(reply[1].flatten)]
      end

      def pairs(reply)
        reply[0].is_a?(Array) ? reply : reply.each_slice(2).to_a
      end

      def hashes(reply)
        reply.map { |one| hash(one) }
      end

      # One line per client: `id=3 addr=... name=`.
      def clients(reply)
        reply.split("\n").map { |line| line.split(' ').map { |field| field.split('=', 2) }.to_h }
      end

      # `cmdstat_get:calls=1,usec=2`
      def commandstats(reply)
        stats = {}
        info(reply).each do |name, fields|
          stats[name.delete_prefix('cmdstat_')] = fields.split(',').map { |field| field.split('=', 2) }.to_h
        end
        stats
      end

      def pending(reply)
        { 'size' => reply[0], 'min_entry_id' => reply[1], 'max_entry_id' => reply[2], 'consumers' => (reply[3] || []).to_h }
      end

      def pending_entries(reply)
        reply.map { |id, consumer, elapsed, count| { 'entry_id' => id, 'consumer' => consumer, 'elapsed' => elapsed, 'count' => count } }
      end

      def claimed(reply)
        { 'next' => reply[0], 'entries' => entries(reply[1]) }
      end

      def claimed_ids(reply)
        { 'next' => reply[0], 'entries' => reply[1] }
      end

      def info(reply)
        pairs = {}
        reply.split("\r\n").each do |line|
          next if line.empty? || line[0] == '#'
          at = line.index(':')
          pairs[line[0, at]] = line[at + 1, line.size] if at
        end
        pairs
      end

      def time(reply)
        reply.map { |number| number.to_i }
      end

      # An entry is its id and its fields.
      def entries(reply)
        (reply || []).map { |id, fields| [id, fields && hash(fields)] }
      end

      def streams(reply)
        found = {}
        reply = reply.to_a if reply.is_a?(Hash)
        (reply || []).each { |stream, list| found[stream] = entries(list) }
        found
      end
    end
  end
end
