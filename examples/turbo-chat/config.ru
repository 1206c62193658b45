# frozen_string_literal: true

require "cgi"
require "rack"
require "securerandom"

STREAM = "chat"
STREAMED = "text/vnd.turbo-stream.html; charset=utf-8"
FORM = '<form id="form" action="/messages" method="post"><input name="text" maxlength="500" required autofocus> ' \
       "<button>Send</button></form>"
TURBO = File.expand_path("node_modules/@hotwired/turbo/dist/turbo.es2017-esm.js", __dir__)
KEPT = File.expand_path("messages.txt", __dir__)
page = File.read(File.expand_path("chat.html", __dir__))
abort "Turbo is not here: npm install --prefix #{__dir__} @hotwired/turbo" unless File.exist?(TURBO)

# A line of the file: an id and the text. Turbo shows a message with the same id once.
item = lambda do |line|
  id, text = line.chomp.split(" ", 2)
  %(<li id="message-#{id}">#{CGI.escapeHTML(text)}</li>)
end
stream = lambda do |action, target, html|
  %(<turbo-stream action="#{action}" target="#{target}"><template>#{html}</template></turbo-stream>)
end

run(lambda do |env|
  request = Rack::Request.new(env)
  case [request.request_method, request.path_info]
  when %w[GET /]
    # Before the messages are read, so that none is missed between reading and listening.
    position = Firebrick::Hub.position(STREAM)
    events = Firebrick::Hub.events_path(STREAM, position: position, refresh: true, path: "/live")
    messages = File.exist?(KEPT) ? File.readlines(KEPT, encoding: "UTF-8").last(100).map(&item).join("\n") : ""
    parts = { "EVENTS" => CGI.escapeHTML(events), "MESSAGES" => messages, "FORM" => FORM }
    headers = { "content-type" => "text/html; charset=utf-8", "cache-control" => "no-store" }
    [200, headers, [page.gsub(/EVENTS|MESSAGES|FORM/, parts)]]
  when %w[GET /turbo.js]
    [200, { "content-type" => "text/javascript; charset=utf-8" }, [File.read(TURBO)]]
  when %w[POST /messages]
    text = request.params["text"].to_s.scrub[0, 500].split.join(" ")
    next [422, { "content-type" => "text/plain" }, ["The message is empty.\n"]] if text.empty?

    line = "#{SecureRandom.hex(8)} #{text}\n"
    # A short line is written whole, also by several workers.
    File.write(KEPT, line, mode: "a")
    Firebrick::Hub.publish(STREAM, stream.call("append", "messages", item.call(line)))
    [200, { "content-type" => STREAMED }, [stream.call("replace", "form", FORM)]]
  else
    [404, { "content-type" => "text/plain" }, ["Not Found\n"]]
  end
end)
