# A Hash that drops its least recently used entries.
class LRUCache
  # A ring: its head is an entry without a key, after it the newest, before it the oldest.
  class Entry
    attr_accessor :key, :value, :newer, :older

    def initialize(key = nil, value = nil)
      @key = key
      @value = value
      @newer = @older = self
    end

    def leave
      @newer.older = @older
      @older.newer = @newer
    end

    def stand_behind(head)
      @newer = head
      @older = head.older
      @older.newer = self
      head.older = self
    end
  end

  attr_reader :capacity

  def initialize(capacity)
    raise ArgumentError, "capacity must not be negative (given #{capacity})" if capacity < 0
    @capacity = capacity
    @entries = {}
    @head = Entry.new
  end

  def get(key)
    entry = @entries[key]
    return nil unless entry
    entry.leave
    entry.stand_behind(@head)
    entry.value
  end
  alias [] get

  def set(key, value)
    delete(key)
    entry = @entries[key] = Entry.new(key, value)
    entry.stand_behind(@head)
    delete(@head.newer.key) if @entries.size > @capacity
    value
  end
  alias []= set

  # The value, made by the block if it is missing.
  def fetch(key)
    return get(key) if @entries.key?(key)
    set(key, yield(key))
  end

  def delete(key)
    entry = @entries.delete(key)
    return nil unless entry
    entry.leave
    entry.value
  end

  def key?(key)
    @entries.key?(key)
  end

  def size
    @entries.size
  end

  def clear
    @entries.clear
    @head = Entry.new
    self
  end
end
