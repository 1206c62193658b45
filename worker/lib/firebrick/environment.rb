# frozen_string_literal: true

require "firebrick/exchange"
require "firebrick/native"
require "firebrick/null_input"
require "firebrick/request_handle"
require "firebrick/sendfile_rules"

module Firebrick
  # The env that every request starts from. The native worker copies it and adds the request's variables.
  module Environment
    # A placeholder for the objects that belong to a request. In the warm-up, which has no request, it raises IOError.
    OF_REQUEST = Object.new.extend(RequestHandle)
    Native::Handle.include(RequestHandle)
    Native::Hints.include(HintsHandle)

    module_function

    # Returns the base env. +sendfile+ are the rules of the `[sendfile]` table, as SendfileRules reads them.
    def base(multithread:, early_hints:, multiprocess: true, sendfile: [])
      cgi.merge(rack(multithread, multiprocess)).tap do |env|
        env["rack.early_hints"] = OF_REQUEST if early_hints
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
        "rack.run_once" => false, "rack.hijack?" => true, "rack.hijack" => OF_REQUEST,
        "rack.after_reply" => nil, "rack.response_finished" => nil, "firebrick.queue_time" => 0.0,
        "firebrick.timeout" => OF_REQUEST
      }
    end
  end
end
