# frozen_string_literal: true

require "firebrick/exchange"
require "firebrick/null_input"
require "firebrick/request_timeout"
require "firebrick/sendfile_rules"

module Firebrick
  # The env that every request starts from. The native worker copies it and adds what is specific to the request.
  module Environment
    module_function

    # +sendfile+ are the rules of the table of that name, as SendfileRules reads them.
    def base(multithread:, early_hints:, multiprocess: true, sendfile: [])
      cgi.merge(rack(multithread, multiprocess)).tap do |env|
        env["rack.early_hints"] = ->(headers) { Native.early_hints(headers) } if early_hints
        env["firebrick.sendfile"] = SendfileRules.parse(sendfile) unless sendfile.empty?
      end
    end

    def cgi
      {
        "REQUEST_METHOD" => "", "PATH_INFO" => "/", "REQUEST_PATH" => "/", "REQUEST_URI" => "/",
        "QUERY_STRING" => "", "SCRIPT_NAME" => "", "SERVER_NAME" => "", "SERVER_PORT" => "", "REMOTE_ADDR" => "",
        "SERVER_PROTOCOL" => "HTTP/1.1", "HTTP_VERSION" => "HTTP/1.1",
        "SERVER_SOFTWARE" => "Firebrick #{VERSION}", "GATEWAY_INTERFACE" => "CGI/1.2"
      }
    end

    def rack(multithread, multiprocess)
      {
        "rack.url_scheme" => "http", "rack.version" => [1, 6].freeze, "rack.errors" => $stderr,
        "rack.input" => NullInput.new, "rack.multithread" => multithread, "rack.multiprocess" => multiprocess,
        "rack.run_once" => false, "rack.hijack?" => true, "rack.hijack" => Exchange.method(:hijack),
        "rack.after_reply" => nil, "rack.response_finished" => nil, "firebrick.queue_time" => 0.0,
        "firebrick.timeout" => RequestTimeout.new
      }
    end
  end
end
