cache = LRUCache.new(3)
%w[a b c].each_with_index { |key, value| cache.set(key, value) }
same 0, cache.get('a')
cache.set('d', 3)
same [true, false, true, true], %w[a b c d].map { |key| cache.key?(key) }
cache['c'] = 20
cache.set('e', 4)
same [nil, 20, 3, 4], %w[a c d e].map { |key| cache.get(key) }
same 3, cache.size
same 5, cache.fetch('f') { 5 }
same 5, cache.fetch('f') { raise 'known' }
same 5, cache.delete('f')
same nil, cache.delete('f')
same nil, cache.get('f')
cache.clear
same [0, nil], [cache.size, cache.get('e')]
cache.set(:one, nil)
same true, cache.key?(:one)

none = LRUCache.new(0)
none.set(1, 2)
same [nil, 0], [none.get(1), none.size]
raises(ArgumentError, 'negative') { LRUCache.new(-1) }

# A slow, simple implementation to compare with.
cache = LRUCache.new(5)
list = []
random = 7
2_000.times do
  random = (random * 1_103 + 12_345) % 65_537
  key = random % 9
  pair = list.find { |known, _| known == key }
  list.delete(pair) if pair
  if random % 2 == 0
    same pair && pair[1], cache.get(key)
    list << pair if pair
  else
    cache.set(key, random)
    list << [key, random]
    list.shift if list.size > 5
  end
  same list.size, cache.size
end
