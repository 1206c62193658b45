# frozen_string_literal: true

require "firebrick/public_files/inner"
require "firebrick/public_files/static"
require "firebrick/public_files/frameworks"

module Firebrick
  module PublicFiles
    # Finds the middleware that sends files.
    module Senders
      # name::  its class
      # root::  the folder
      # lines:: how it finds a file, and the fields of its responses; nil when that is unknown
      # last::  whether no app follows it
      Sender = Struct.new(:name, :root, :lines, :last) do
        alias_method :last?, :last

        def files_alone?
          last && !lines.nil?
        end
      end

      RAILS = "ActionDispatch::Static"
      LEFT = "config.public_file_server.enabled = false"

      module_function

      # Returns the Sender; nil for middleware that sends no files.
      def of(app)
        return if app.is_a?(Module)

        case Inner.name(app)
        when RAILS then Frameworks.rails(app)
        when "Rack::Files", "Rack::File" then Static.files(app)
        when "Rack::Directory" then Static.directory(app)
        else others(app)
        end
      end

      def others(app)
        if defined?(::Rack::Static) && app.is_a?(::Rack::Static) then Static.static(app)
        elsif Inner.sinatra?(app.class) then Frameworks.sinatra(app)
        end
      end

      def left_to_the_server
        Frameworks.left_to_the_server
      end
    end
  end
end
