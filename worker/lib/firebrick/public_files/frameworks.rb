# frozen_string_literal: true

require "firebrick/public_files/inner"
require "firebrick/public_files/static"

module Firebrick
  module PublicFiles
    # The file senders of Rails and Sinatra.
    module Frameworks
      module_function

      # ActionDispatch::Static.
      def rails(app)
        handler = Inner.variable(app, :@file_handler)
        server = handler && Inner.variable(handler, :@file_server)
        root = handler ? File.expand_path(Inner.variable(handler, :@root).to_s) : ""
        known = server && [app, handler, server].all? { |one| Inner.unchanged?(one) }
        Senders::Sender.new(Senders::RAILS, root, known ? rails_lines(handler, server) : nil, false)
      end

      def rails_lines(handler, server)
        codings = Array(Inner.variable(handler, :@precompressed) || "gzip").map(&:to_s) - ["identity"]
        rails_paths(Inner.variable(handler, :@index), codings) +
          Static.headers("all", Inner.variable(server, :@headers))
      end

      # A path without a type may be that of a page.
      def rails_paths(index, codings)
        page = "ActionController::Base".split("::").inject(Object) { |scope, name| scope&.const_get(name) }
        extension = page.default_static_extension
        [["chomp"], ["typed"], ["next"], ["try", extension], ["try", "/#{index || 'index'}#{extension}"],
         *codings.map { |one| ["coding", one] }, Static::TYPE]
      end

      # Returns the sender that replaces the middleware that Rails has left out; nil when Rails has not, or when the
      # operator has configured the app to send files.
      def left_to_the_server
        config = rails_config
        files = config&.public_file_server
        return if files.nil? || files.enabled || asked_to_send?

        lines = rails_paths(files.index_name, %w[br gzip]) + Static.headers("all", files.headers)
        Senders::Sender.new(Senders::LEFT, rails_folder(config), lines, false)
      end

      def asked_to_send?
        !ENV["RAILS_SERVE_STATIC_FILES"].to_s.empty?
      end

      def rails_folder(config)
        File.expand_path(config.paths["public"].first.to_s, config.root.to_s)
      end

      def rails_config
        return unless defined?(::Rails) && ::Rails.respond_to?(:application) && ::Rails.application

        config = ::Rails.application.config
        config if config.respond_to?(:public_file_server)
      end

      # `static!` of Sinatra runs before the filters and routes of an app, and after all of its middleware.
      def sinatra(app)
        settings = app.class
        return unless settings.static?

        folder = File.expand_path(settings.public_folder.to_s)
        return Senders::Sender.new(Inner.name(app), folder, nil, true) unless sinatra_itself?(app)

        lines = [["default-type", "application/octet-stream"], ["charset", settings.default_encoding.to_s.downcase],
                 *cache_control(settings), *static_headers(settings)]
        # Routes, which cannot be inspected, come before any further app.
        Senders::Sender.new(Inner.name(app), folder, lines, true)
      end

      # The methods of Sinatra that a request for a file runs.
      SINATRAS = %i[
        call call! dispatch! static! send_file cache_control content_type last_modified headers status
      ].freeze

      # Sinatra's own `add_charset`.
      CHARSETS = [*%w[javascript xml xhtml+xml].map { |type| "application/#{type}" }, %r{^text/}].freeze

      # Returns whether the app overrides none of them, and adds the charset to no other types.
      def sinatra_itself?(app)
        app.class.add_charset == CHARSETS &&
          SINATRAS.all? { |name| [::Sinatra::Base, ::Sinatra::Helpers].include?(app.method(name).owner) }
      end

      # Equivalent to Sinatra's method of the same name.
      def cache_control(settings)
        return [] unless settings.static_cache_control?

        *words, last = Array(settings.static_cache_control)
        pairs = last.is_a?(Hash) ? last : { last => true }
        words = words.to_h { |word| [word, true] }.merge(pairs).map { |name, value| directive(name, value) }.compact
        words.empty? ? [] : [["header", "all", "Cache-Control", words.join(", ")]]
      end

      def directive(name, value)
        name = name.to_s.tr("_", "-")
        return (name if value) if [true, false].include?(value)

        "#{name}=#{%w[max-age s-maxage].include?(name) ? value.to_i : value}"
      end

      # Since Sinatra 4.
      def static_headers(settings)
        return [] unless settings.respond_to?(:static_headers) && settings.static_headers

        Static.headers("all", settings.static_headers)
      end
    end
  end
end
