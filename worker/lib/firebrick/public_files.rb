# frozen_string_literal: true

require "firebrick/public_files/walk"
require "firebrick/wire"

module Firebrick
  # Finds the files that an app's middleware would send, their header fields, and the middleware before it. The front
  # sends these files itself where that makes no difference (docs/internals/processes.md, "Public files").
  #
  # Contract: the app is only inspected. Files of middleware that is not understood are left to the app.
  module PublicFiles
    KEY = Wire::Booted::FILES

    module_function

    # Returns facts for `booted`: pairs of a key and a line of words separated by tabs.
    def facts(app)
      lines = Walk.new.lines(app)
      lines << ["types", *types] if lines.any? { |verb, _| verb == "rule" }
      lines.map { |words| [KEY, words.map { |word| escape(word) }.join("\t")] }
    rescue StandardError => e
      # An app that cannot be inspected sends its files itself.
      [[KEY, "mount\t"], [KEY, "app\t#{escape(e.class)}\t"]]
    end

    # Returns Rack's table of types, with the app's additions.
    def types
      return [] unless defined?(Rack::Mime::MIME_TYPES)

      types = Rack::Mime::MIME_TYPES.select { |_, type| type }
      types.map { |extension, type| "#{extension.to_s.delete_prefix('.')}=#{type}" }
    end

    def escape(word)
      word.to_s.b.gsub(/[%\t\n\r\0]/n) { |byte| format("%%%02X", byte.ord) }
    end
  end
end
