# frozen_string_literal: true

module Firebrick
  # Names the routes of an app by its framework, and counts its queries. The rest is
  # native (worker/native/src/routes.rs, queries.rs); the plain-Ruby worker finds names with Pure::RouteNames.
  module Routes
    # Frameworks by a constant of theirs, with the numbers of worker/native/src/routes.rs.
    SOURCES = { "ActionDispatch" => 1, "Sinatra::Base" => 2, "Grape::API" => 4, "Hanami::Action" => 8 }.freeze

    # Counts the queries of Sequel.
    module SequelQueries
      def log_connection_yield(sql, *)
        Native::Queries.start(nil, nil, nil)
        super
      ensure
        Native::Queries.finish(nil, nil, sql)
      end
    end

    class << self
      # Follows the queries of the libraries that are loaded. Returns the sum of the numbers of the frameworks that are.
      def install
        count_queries if Native.const_defined?(:Queries)
        SOURCES.sum { |constant, number| loaded?(constant) ? number : 0 }
      end

      # Returns the name of the route that an object stands for: a class of Hanami, or a route of Grape. nil if it has
      # none.
      def name(object)
        return object.name if object.is_a?(Module)

        path = object.respond_to?(:pattern) ? object.pattern.origin : object.path
        "#{object.request_method} #{path}"
      rescue StandardError
        nil
      end

      # The characters of a query that are shown.
      SHOWN = 120

      # Returns the line of the app that makes a query, and the query without its values: "app/models/post.rb:12:
      # SELECT ...". nil if no frame of the app is on the stack.
      def place(sql)
        line = line_of_app(caller_locations(1)) or return
        text = sql.byteslice(0, 4 * SHOWN).scrub.gsub(/'[^']*(?:'|\z)|\b\d[\d.]*\b/, "?")
        "#{line}: #{text.split.join(' ')[0, SHOWN]}"
      end

      # Returns the line of the app that has called a function in C, and the function: "app/report.rb:12: Array#sort".
      # @param function [String, nil] nil: an operator without a frame of its own
      def place_held(function)
        line = line_of_app(caller_locations(1))
        line && function ? "#{line}: #{function}" : line || function
      end

      # Returns file and line of the innermost frame in the app's folder, apart from the gems in it.
      def line_of_app(frames)
        folder = "#{Dir.pwd}/"
        frame = frames.find do |one|
          path = one.absolute_path || one.path
          path.start_with?(folder) && !path.match?(%r{/(?:gems|vendor)/}) && !path.start_with?(OWN)
        end
        "#{(frame.absolute_path || frame.path).delete_prefix(folder)}:#{frame.lineno}" if frame
      end

      OWN = "#{__dir__}/"

      private

      # Never loads anything: autoloads of an app are its own business.
      def loaded?(constant)
        constant.split("::").inject(Object) do |scope, name|
          return false if !scope.const_defined?(name, false) || scope.autoload?(name)

          scope.const_get(name, false)
        end
        true
      end

      def count_queries
        return if @counts

        if loaded?("ActiveRecord") && loaded?("ActiveSupport::Notifications")
          ActiveSupport::Notifications.subscribe("sql.active_record", Native::Queries)
          @counts = true
        end
        if loaded?("Sequel::Database")
          Sequel::Database.prepend(SequelQueries)
          @counts = true
        end
        Native.reports_queries if @counts
      end
    end
  end
end
