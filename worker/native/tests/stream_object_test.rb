# frozen_string_literal: true

# The methods of the stream of a streaming body, with and without a request body.
class StreamObjectTest < Case
  # Returns what the client reads of the output that the app's code writes to the stream.
  def stream(code, body: nil)
    app = "run ->(env) { [200, {}, lambda { |s| begin; #{code}; rescue => e; s << e.class.name; end; s.close unless s.closed? }] }"
    serve(app) do |worker|
      id = body ? worker.start(method: "POST", body: body) : worker.start
      frame = worker.take_for(id, :response)
      assert_predicate frame, :stream?
      socket = UNIXSocket.for_fd(frame.fd.fileno)
      frame.fd.autoclose = false
      assert_equal yield, socket.read
      socket.close
    end
  end

  def test_close_takes_a_reason
    [nil, "body"].each do |body|
      stream('s << "x"; s.close(nil); s.close', body: body) { "x" }
      stream('s << "y"; s.close(RuntimeError.new)', body: body) { "y" }
    end
  end

  def test_readpartial_returns_the_body_first_and_raises_at_the_end
    stream("s << s.readpartial(3) << '|' << s.readpartial(100) << '|'; s.readpartial(1)", body: "hello") { "hel|lo|EOFError" }
    stream("s.readpartial(10)") { "EOFError" }
    stream("b = +'old'; s.readpartial(5, b); s << b", body: "hello") { "hello" }
    stream("s << s.readpartial(0).inspect", body: "hello") { '""' }
  end

  # A stand-in for a client that sends late, which only the stream of an upgraded connection can see.
  def test_readpartial_waits
    app = <<~RUBY
      run ->(env) { [101, { "connection" => "upgrade", "upgrade" => "x" }, lambda { |s| s << s.readpartial(10) << s.readpartial(10); s.close }] }
    RUBY
    [nil, "body"].each do |body|
      serve(app) do |worker|
        id = body ? worker.start(method: "POST", body: body) : worker.start
        frame = worker.take_for(id, :response)
        socket = UNIXSocket.for_fd(frame.fd.fileno)
        frame.fd.autoclose = false
        sleep 0.3
        socket.write("later")
        sleep 0.1
        socket.write("last") unless body
        socket.close_write
        assert_equal body ? "bodylater" : "laterlast", socket.read
      end
    end
  end
end
