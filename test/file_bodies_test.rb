# frozen_string_literal: true

# Bodies with `to_path`: if the path cannot be opened, the bytes come from `each`.

require "support/case"

FILE_BODIES_APP = <<~'RUBY'
  require "tempfile"
  body = Class.new do
    def initialize(path) = @path = path
    def to_path = @path
    def each = yield("by each")
    def close = File.write("closed.log", "yes")
  end

  run lambda { |env|
    bytes =
      case env["PATH_INFO"]
      when "/pipe" then IO.popen(["echo", "-n", "from a pipe"])
      when "/unlinked" then Tempfile.new.tap { |file| file.unlink; file.write("unlinked"); file.rewind }
      when "/missing" then body.new("/nonexistent/file")
      when "/nil" then body.new(nil)
      when "/folder" then body.new(".")
      when "/unreadable" then body.new("/proc/self/mem\0x")
      when "/file" then body.new("config.ru")
      end
    [200, { "content-type" => "text/plain" }, bytes]
  }
RUBY

class FileBodiesTest < Case
  in_turn!

  shared_server threads: "1:1", app: FILE_BODIES_APP

  { "/pipe" => "from a pipe", "/unlinked" => "unlinked", "/missing" => "by each", "/nil" => "by each", "/folder" => "by each",
    "/unreadable" => "by each", "/file" => FILE_BODIES_APP }.each do |path, expected|
    it "sends #{path}" do
      response = get(path)
      assert_status 200, response
      assert_equal expected, response.body
    end
  end
end
