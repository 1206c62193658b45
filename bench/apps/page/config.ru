# frozen_string_literal: true

# A page of 3,936 bytes, the size of a small HTML document.
line = "<p>The quick brown fox jumps over the lazy dog.</p>\n"
page = "<!doctype html>\n<title>Page</title>\n#{line * 80}"[0, 3_936].freeze
headers = { "content-type" => "text/html; charset=utf-8" }.freeze
body = [page].freeze

run ->(_env) { [200, headers.dup, body] }
