# StringIO and StringScanner.
EOFError = Class.new(StandardError) unless Object.const_defined?(:EOFError)

class StringIO
  include Enumerable

  attr_accessor :pos, :lineno
  attr_reader :string

  def self.open(*args)
    io = new(*args)
    block_given? ? yield(io) : io
  end

  def initialize(string = '', mode = nil)
    @string = string
    @pos = mode.to_s.start_with?('a') ? string.bytesize : 0
    string.replace('') if mode.to_s.start_with?('w')
    @lineno = 0
    @closed = false
  end

  def string=(string)
    @string = string
    rewind
  end

  def read(length = nil, buffer = nil)
    raise ArgumentError, "negative length #{length} given" if length && length < 0
    left = @string.bytesize - @pos
    left = 0 if left < 0
    part = @string.byteslice(@pos, length && length < left ? length : left) || ''
    @pos += part.bytesize
    part = nil if length && length > 0 && part.empty?
    return part unless buffer
    buffer.replace(part || '')
    part && buffer
  end

  def gets(separator = "\n", chomp: false)
    return nil if @pos >= @string.bytesize
    found = separator && @string.index(separator, @pos)
    stop = found ? found + separator.bytesize : @string.bytesize
    line = @string.byteslice(@pos, stop - @pos)
    @pos = stop
    @lineno += 1
    chomp ? line.chomp : line
  end

  def readline(*args)
    gets(*args) || raise(EOFError, 'end of file reached')
  end

  def each_line
    return to_enum(:each_line) unless block_given?
    while (line = gets)
      yield line
    end
    self
  end
  alias each each_line

  def readlines
    each_line.to_a
  end

  def getc
    read(1)
  end

  def getbyte
    byte = read(1)
    byte && byte.getbyte(0)
  end

  def each_byte
    while (byte = getbyte)
      yield byte
    end
    self
  end

  def write(*texts)
    texts.inject(0) do |count, text|
      text = text.to_s
      head = @string.byteslice(0, @pos) || @string
      head += "\0" * (@pos - head.bytesize) if head.bytesize < @pos
      tail = @string.byteslice(@pos + text.bytesize, @string.bytesize)
      @string.replace(head + text + tail.to_s)
      @pos += text.bytesize
      count + text.bytesize
    end
  end

  def <<(text)
    write(text)
    self
  end

  def print(*texts)
    write(*texts)
    nil
  end

  def puts(*lines)
    lines = [''] if lines.empty?
    lines.flatten.each { |line| write(line.to_s.end_with?("\n") ? line : "#{line}\n") }
    nil
  end

  def printf(*args)
    write(format(*args))
    nil
  end

  def rewind
    @pos = 0
    @lineno = 0
    0
  end

  def seek(offset, _whence = 0)
    @pos = offset
    0
  end

  def eof?
    @pos >= @string.bytesize
  end
  alias eof eof?
  alias tell pos

  def truncate(length)
    @string.replace(@string.byteslice(0, length))
    length
  end

  def size
    @string.bytesize
  end
  alias length size

  def flush
    self
  end

  def sync
    true
  end

  def sync=(value)
    value
  end

  def close
    @closed = true
    nil
  end

  def closed?
    @closed
  end
end

# Scans a text from start to end by patterns.
class StringScanner
  attr_reader :string, :pos, :matched
  alias pointer pos

  def initialize(string)
    @string = string
    @pos = 0
  end

  def pos=(place)
    @pos = place
    @match = nil
  end

  def scan(pattern)
    step(pattern, true, true)
  end

  def check(pattern)
    step(pattern, true, false)
  end

  def scan_until(pattern)
    step(pattern, false, true)
  end

  def check_until(pattern)
    step(pattern, false, false)
  end

  def skip(pattern)
    text = scan(pattern)
    text && text.bytesize
  end

  def match?(pattern)
    text = check(pattern)
    text && text.bytesize
  end

  def getch
    scan(/./m)
  end

  def peek(length)
    @string.byteslice(@pos, length)
  end

  def rest
    @string.byteslice(@pos, @string.bytesize - @pos)
  end

  def eos?
    @pos >= @string.bytesize
  end

  def terminate
    @pos = @string.bytesize
    self
  end

  def reset
    @pos = 0
    self
  end

  def [](group)
    @match && @match[group]
  end

  def pre_match
    @match && @match.pre_match
  end

  def post_match
    @match && @match.post_match
  end

  private

  def step(pattern, anchored, moves)
    pattern = Regexp.new(Regexp.escape(pattern)) unless pattern.is_a?(Regexp)
    @match = pattern.find(@string, @pos, anchored)
    @matched = @match && @match[0]
    return nil unless @match
    text = @string.byteslice(@pos, @match.end(0) - @pos)
    @pos = @match.end(0) if moves
    text
  end
end
