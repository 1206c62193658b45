# frozen_string_literal: true

require "digest"
require "socket"

class FiberSoak
  # Sends requests one after another, until stopped. The expected responses are known.
  class Client
    # Requests of each kind in about two hundred.
    MIX = { "/hello" => 40, "/sleep" => 24, "/hog" => 8, "/long-hog" => 1, "/own" => 10, "/mutex" => 8, "/monitor" => 8, "/pair" => 4, "/queue" => 6,
            "/timeout" => 5, "/busy-timeout" => 2, "/nested-timeout" => 3, "/redis" => 12, "/database" => 12, "/late-database" => 2, "/enumerator" => 6,
            "/child" => 2, "/socket" => 4, "/schedule" => 4, "/backtrace" => 4, "/extensions" => 6, "/ensured" => 4, "/http" => 5, "/gone" => 5, "/upload" => 8, "/each" => 6,
            "/stream" => 6, "/hijack" => 4, "/raise" => 3 }.flat_map { |path, n| [path] * n }.freeze
    UPLOAD = "The quick brown fox jumps over the lazy dog.\n" * 20_000
    LIMIT = 120

    # The number of responses by path, the longest times in seconds, and the faults: [time, path, fault].
    attr_reader :counts, :longest, :wrong

    def initialize(port, number, pause)
      @port = port
      @number = number
      @random = Random.new(number)
      @pause = pause
      @counts = Hash.new(0)
      @longest = Hash.new(0)
      @wrong = []
    end

    def run
      until @stopped
        ask(MIX[@random.rand(MIX.size)])
        sleep @random.rand(@pause * 2) if @pause.positive?
      end
    ensure
      @socket&.close
    end

    def stop = @stopped = true

    private

    def ask(path)
      began = now
      word = "w#{@number}x#{@counts.values.sum}"
      # An idle connection may be closed before the request is sent.
      hang_up if @socket && @random.rand < 0.3
      @socket ||= TCPSocket.new("127.0.0.1", @port)
      problem = path == "/gone" ? abort_one(word) : judge(path, word, *exchange(path, word))
      @wrong << [began, now, path, problem] if problem
      @counts[path] += 1
      @longest[path] = [@longest[path], now - began].max
    rescue SystemCallError, IOError, FiberSoak::Late => e
      @wrong << [began, now, path, "#{e.class}: #{e.message}"]
      hang_up
      sleep 0.1
    end

    def abort_one(word)
      @socket.write("GET /gone?#{word} HTTP/1.1\r\nHost: soak\r\n\r\n")
      sleep @random.rand(0.1)
      hang_up
      nil
    end

    def exchange(path, word)
      if path == "/upload"
        body = UPLOAD.byteslice(0, @random.rand(UPLOAD.bytesize))
        @socket.write("POST #{path}?#{word} HTTP/1.1\r\nHost: soak\r\nContent-Length: #{body.bytesize}\r\n\r\n")
        # In two parts, so that the app waits for the second one.
        half = body.bytesize / 2
        @socket.write(body.byteslice(0, half))
        sleep @random.rand(0.02)
        @socket.write(body.byteslice(half..))
        @digest = Digest::SHA256.hexdigest(body)
      else
        @socket.write("GET #{path}?#{word} HTTP/1.1\r\nHost: soak\r\n\r\n")
      end
      read
    end

    # [status, body]
    def read
      head = line_by_line
      status = head.first.to_s[/\AHTTP\S* (\d+)/, 1].to_i
      fields = head[1..-2].to_h { |line| line.downcase.chomp.split(": ", 2) }
      length = fields["content-length"]
      body = fields["transfer-encoding"] == "chunked" ? chunks : length_or_rest(length)
      hang_up if fields["connection"] == "close"
      [status, body]
    end

    def length_or_rest(length)
      length ? exactly(length.to_i) : rest.tap { hang_up }
    end

    def line_by_line
      lines = []
      lines << line until lines.last == "\r\n"
      lines
    end

    def chunks
      body = +""
      until (size = line.to_i(16)).zero?
        body << exactly(size)
        line
      end
      line
      body
    end

    def line
      ready
      @socket.gets || raise(EOFError, "end of the connection")
    end

    def exactly(size)
      body = +""
      while body.bytesize < size
        ready
        body << @socket.readpartial(size - body.bytesize)
      end
      body
    end

    def rest
      body = +""
      loop do
        ready
        body << @socket.readpartial(65_536)
      end
    rescue EOFError
      body
    end

    def ready
      raise FiberSoak::Late, "nothing for #{LIMIT} s" unless @socket.wait_readable(LIMIT)
    end

    # Returns the fault of a response; nil: none.
    def judge(path, word, status, body)
      wanted = path == "/raise" ? 500 : 200
      return "status #{status}" unless status == wanted

      expected = case path
                 when "/raise" then return
                 when "/upload" then "#{word} #{@digest}"
                 when "/each" then Array.new(5) { |n| "#{word} #{n}\n" }.join
                 when "/hijack" then Array.new(3) { |n| "#{word} #{n}\n" }.join
                 when "/stream" then Array.new(8) { |n| "#{n} #{word} #{'0123456789abcdef' * 1024}\n" }.join
                 else "#{word} ok"
                 end
      "#{body.bytesize} bytes #{body[0, 60].inspect}, not #{expected[0, 60].inspect}" unless body == expected
    end

    def hang_up
      @socket&.close
      @socket = nil
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
