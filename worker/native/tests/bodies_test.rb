# frozen_string_literal: true

# Status, headers and the kinds of body.
class BodiesTest < Case
  def answer(text, files: {}, **request)
    serve(app(text), files: files) { |worker| return worker.get("/", **request) }
  end

  def test_headers_of_both_racks
    _, fields, = answer('[200, { "Set-Cookie" => "a=1\nb=2", "x-array" => %w[1 2], "x-int" => 5, :sym => "s", "x-nil" => nil, "rack.own" => 1 }, []]')
    assert_equal [%w[Set-Cookie a=1], %w[Set-Cookie b=2], %w[x-array 1], %w[x-array 2], %w[x-int 5], %w[sym s]], fields
  end

  def test_headers_need_only_each
    _, fields, = answer('h = Object.new; def h.each; yield "a", "1"; yield ["b", "2"]; end; [200, h, []]')
    assert_equal [%w[a 1], %w[b 2]], fields
  end

  def test_statuses
    assert_equal 201, answer('["201", {}, []]').first
    assert_equal 404, answer("[404, {}, []]").first
    ["nil", "0", "99", "600", '"abc"', "Object.new", "2**80"].each { |status| assert_equal 500, answer("[#{status}, {}, []]").first, status }
  end

  def test_bodies
    enumerator = "Enumerator.new { |y| y << 'a'; y << 'b' }"
    proxy = "require 'rack/body_proxy'; Rack::BodyProxy.new(%w[a b]) { }"
    responder = "o = Object.new; def o.each; yield 'a'; yield ''; yield 'b'; end; o"
    to_ary = "o = Object.new; def o.to_ary; %w[a b]; end; def o.each(&b) = to_ary.each(&b); o"
    ['["a", "b"]', '"ab"', enumerator, proxy, responder, to_ary, "Class.new(Array).new(%w[a b])"].each do |body|
      assert_equal [200, "ab", false], answer("body = (#{body}); [200, {}, body]").values_at(0, 2, 3), body
    end
  end

  def test_a_small_array_is_one_frame
    serve(app('[200, {}, ["a" * 1000] * 100]')) do |worker|
      frame = worker.take_for(worker.start)
      assert_predicate frame, :end?
      assert_equal 100_000, frame.head.last.bytesize
    end
  end

  def test_what_is_gathered_is_one_frame
    each = "def b.each; 10.times { |i| yield i.to_s }; end"
    ["b = Object.new; #{each}; [200, { 'content-length' => '10' }, b]",
     "b = Object.new; #{each}; def b.to_ary; end; [200, {}, b]"].each do |text|
      serve(app(text)) { |worker| assert_equal "0123456789", worker.take_for(worker.start).head.last }
    end
  end

  def test_large_arrays_travel_as_files
    serve(app('[200, {}, ["x" * 1_000_000, "yz"]]')) do |worker|
      id = worker.start
      refute_predicate worker.take_for(id, :response), :end?
      assert_equal 1_000_002, worker.take_for(id, :offer).length
      worker.lend(id)
      file = worker.take_for(id, :file)
      assert_equal "#{'x' * 1_000_000}yz", worker.file_bytes(file)
      refute_predicate worker.take_for(id, :end), :end?
    end
  end

  def test_large_arrays_of_many_parts_travel_as_files_at_once
    serve(app("[200, {}, Array.new(1000) { |i| i.to_s * 1000 }]")) do |worker|
      id = worker.start
      file = worker.take_for(id, :file)
      assert_equal Array.new(1000) { |i| i.to_s * 1000 }.join, worker.file_bytes(file)
      assert_empty(worker.frames.select { |frame| frame.kind == :offer })
    end
  end

  def test_large_chunks_out_of_each
    body = answer("o = Object.new; def o.each; 5.times { |i| yield i.to_s * 700_000 }; end; [200, {}, o]")[2]
    assert_equal (0..4).map { |i| i.to_s * 700_000 }.join, body
  end

  def test_many_chunks_with_a_length
    body = answer('o = Object.new; def o.each; 100_000.times { |i| yield i.to_s.rjust(10) }; end; [200, { "content-length" => "1000000" }, o]')[2]
    assert_equal (0...100_000).map { |i| i.to_s.rjust(10) }.join, body
  end

  def test_files
    text = 'o = Object.new; def o.to_path = "data"; def o.each = raise; [200, {}, o]'
    serve(app(text), files: { "data" => "contents" * 1000 }) do |worker|
      id = worker.start
      worker.take_for(id, :response)
      assert_equal "contents" * 1000, worker.file_bytes(worker.take_for(id, :file))
      worker.take_for(id, :end)
    end
    assert_equal [200, ""], answer(text, files: { "data" => "" }).values_at(0, 2)
    assert_equal 500, answer(text).first
    assert_equal [200, "real"], answer(text.sub("raise", "yield('real')").sub('"data"', '"/dev"')).values_at(0, 2)
  end

  def test_head_closes_without_iterating
    text = '$log ||= []; b = Object.new; def b.each = $log << :each; def b.close = $log << :close; [200, {}, env["PATH_INFO"] == "/log" ? [$log.inspect] : b]'
    serve(app(text)) do |worker|
      assert_equal [200, ""], worker.get("/", method: "HEAD").values_at(0, 2)
      assert_equal "[:close]", worker.get("/log")[2]
    end
    %w[204 304].each { |status| assert_equal [status.to_i, ""], answer("[#{status}, {}, ['x']]").values_at(0, 2) }
  end

  CLOSING = <<~'RUBY'
    $closed ||= Hash.new(0)
    class Body
      def initialize(name, &each) = (@name, @each = name, each)
      def each(&block) = @each.call(block)
      def close = ($closed[@name] += 1)
    end
    name = env["PATH_INFO"]
    case name
    when "/plain" then [200, {}, Body.new(name) { |b| b.call("x") }]
    when "/raises" then [200, {}, Body.new(name) { |b| raise "no" }]
    when "/late" then [200, {}, Body.new(name) { |b| b.call("x"); raise "no" }]
    when "/wrong" then [200, {}, Body.new(name) { |b| b.call(5) }]
    when "/status" then [0, {}, Body.new(name) { }]
    when "/header" then [200, { "a" => "b\r" }, Body.new(name) { }]
    else [200, {}, [$closed.inspect]]
    end
  RUBY

  def test_close_is_called_exactly_once
    serve(app(CLOSING)) do |worker|
      names = %w[/plain /raises /late /wrong /status /header]
      statuses = names.map { |name| worker.get(name).values_at(0, 3) }
      assert_equal [[200, false], [500, false], [200, true], [500, false], [500, false], [500, false]], statuses
      assert_equal names.to_h { |name| [name, 1] }.inspect, worker.get("/closed")[2]
    end
  end

  def test_frozen_and_shared_responses
    serve("R = [200, { 'a' => 'b' }.freeze, ['x'].freeze].freeze\nrun ->(_) { R }") do |worker|
      3.times { assert_equal [200, [%w[a b]], "x", false], worker.get }
    end
  end
end
