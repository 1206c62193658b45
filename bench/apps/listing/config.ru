# frozen_string_literal: true

# A page of 30 KB, like a list in a Rails app: text of a language, repeated markup, ids and times. KEPT=1: a shared cache may keep it. DEFLATE=1:
# Rack::Deflater compresses it.
require_relative "page"

use Rack::Deflater if ENV["DEFLATE"] == "1"

headers = { "content-type" => "text/html; charset=utf-8" }
headers["cache-control"] = "public, max-age=3600" if ENV["KEPT"] == "1"
body = [Listing::PAGE].freeze

run ->(_env) { [200, headers.dup, body] }
