# frozen_string_literal: true

require "firebrick/public_files/walk"

module Firebrick
  # Which files the middleware of an app would send by itself, with which fields, and what stands before it: facts for
  # the front, which sends them in its place where that makes no difference (docs/processes.md, "Public files").
  #
  # Contract: the app is only looked at. What cannot be understood is the app's to send.
  module PublicFiles
    KEY = "files"

    module_function

    # Facts for `booted`: pairs of a key and a line of words with tabs between.
    def facts(app)
      lines = Walk.new.lines(app)
      lines << ["types", *types] if lines.any? { |verb, _| verb == "rule" }
      lines.map { |words| [KEY, words.map { |word| escape(word) }.join("\t")] }
    rescue StandardError => e
      # An app that objects to being looked at sends its files itself.
      [[KEY, "mount\t"], [KEY, "app\t#{escape(e.class)}\t"]]
    end

    # Rack's table, with what the app has added to it.
    def types
      return [] unless defined?(Rack::Mime::MIME_TYPES)

      Rack::Mime::MIME_TYPES.filter_map { |extension, type| "#{extension.to_s.delete_prefix('.')}=#{type}" if type }
    end

    def escape(word)
      word.to_s.b.gsub(/[%\t\n\r\0]/n) { |byte| format("%%%02X", byte.ord) }
    end
  end
end
