# frozen_string_literal: true

require "firebrick/public_files/inner"

module Firebrick
  module PublicFiles
    # Rack's file senders: Rack::Static, Rack::Files, Rack::Directory.
    module Static
      FONTS = %w[ttf otf eot woff2 woff svg].freeze
      # Rack's type for files of unknown type.
      TYPE = ["default-type", "text/plain"].freeze

      module_function

      def files(app)
        root = Inner.variable(app, :@root)
        lines = [default_type(app)] + headers("all", Inner.variable(app, :@headers)) if root && Inner.unchanged?(app)
        Senders::Sender.new(Inner.name(app), root.to_s, lines, true)
      end

      def directory(app)
        inner = Inner.variable(app, :@app)
        return unless %w[Rack::Files Rack::File].include?(Inner.name(inner))

        files(inner).tap do |sender|
          sender.name = Inner.name(app)
          sender.lines = nil unless Inner.unchanged?(app)
        end
      end

      # Returns the Sender. A subclass with its own logic is not understood.
      def static(app)
        server = Inner.variable(app, :@file_server)
        return unless server

        known = app.instance_of?(::Rack::Static) && [app, server].all? { |one| Inner.unchanged?(one) } &&
                %w[Rack::Files Rack::File].include?(Inner.name(server))
        lines = of_static(app, server) if known
        Senders::Sender.new(Inner.name(app), Inner.variable(server, :@root).to_s, lines, false)
      end

      def of_static(app, server)
        rules = Array(Inner.variable(app, :@header_rules)).map { |rule, fields| rule(rule, fields) }
        return if rules.any?(&:nil?)

        paths(Inner.variable(app, :@urls)) + options(app) +
          [default_type(server), *headers("all", Inner.variable(server, :@headers)), *rules.flatten(1)]
      end

      def options(app)
        index, gzip, cascade = %i[@index @gzip @cascade].map { |name| Inner.variable(app, name) }
        [(["index", index] if index), (%w[coding gzip] if gzip), (["next"] if cascade)].compact
      end

      def default_type(files)
        type = Inner.variable(files, :@default_mime)
        type ? ["default-type", type] : TYPE
      end

      # Newer versions of Rack have two entries for each: the path, and the path with a slash.
      def paths(urls)
        return urls.map { |url, file| ["map", url, file] } if urls.is_a?(Hash)

        Array(urls).map { |url| ["prefix", Array(url).first] }
      end

      def headers(condition, fields)
        (fields || {}).map { |name, value| ["header", condition, name, value] }
      end

      # Returns the lines of an entry of `header_rules`; nil when only Ruby can match it.
      def rule(rule, fields)
        case rule
        when :all then headers("all", fields)
        when :fonts then extensions(FONTS, fields)
        when String then headers("path:/#{rule.delete_prefix('/')}", fields)
        when Array then extensions(rule, fields)
        end
      end

      def extensions(names, fields)
        names.flat_map { |name| headers("extension:#{name}", fields) }
      end
    end
  end
end
