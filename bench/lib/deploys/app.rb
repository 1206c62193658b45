# frozen_string_literal: true

module Bench
  module Deploys
    # The app of all servers. It responds with its version, read when the app was loaded.
    APP = <<~'RUBY'
      VERSION = File.read(File.join(__dir__, "version.txt"))
      TEXT = { "content-type" => "text/plain" }.freeze
      EVENTS = Class.new do
        def each
          10.times { |i| yield "data: #{i}\n\n"; sleep 0.1 }
        end
      end
      SWITCHED = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
      ECHO = lambda do |io|
        io.write(SWITCHED)
        # Frames of clients are masked and have five bytes of text here: 11 bytes in all.
        while (frame = io.read(11)) && frame.bytesize == 11
          mask = frame[2, 4].bytes
          io.write("\x81\x05".b + frame[6, 5].bytes.each_with_index.map { |byte, i| byte ^ mask[i % 4] }.pack("C*"))
        end
      rescue SystemCallError, IOError
        nil # The client has gone.
      ensure
        io.close
      end
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/upload"
          size = 0
          while (piece = env["rack.input"].read(16_384))
            size += piece.bytesize
          end
          [200, TEXT.dup, [size.to_s]]
        when "/events" then [200, { "content-type" => "text/event-stream" }, EVENTS.new]
        when "/echo"
          io = env["rack.hijack"].call
          Thread.new { ECHO.call(io) }
          [200, {}, []]
        when "/version" then [200, TEXT.merge("connection" => "close"), [VERSION]]
        else sleep 0.002; [200, TEXT.dup, ["Hello"]]
        end
      end)
    RUBY
  end
end
