# frozen_string_literal: true

require "firebrick/public_files/inner"
require "firebrick/public_files/passing"
require "firebrick/public_files/senders"

module Firebrick
  module PublicFiles
    # Walks the middleware of an app from the outside to the inside, and records the file senders.
    #
    # Contract: lines that belong together are adjacent. `mount` begins the part of the app below a path, `rule` a
    # middleware that sends files and its lines; `app` names a middleware whose responses only Ruby can know.
    class Walk
      # The depth at which the walk stops.
      DEEPEST = 300

      def initialize
        @lines = []
        @seen = {}.compare_by_identity
      end

      # Returns the lines, each an Array of words.
      def lines(app)
        mount("", app, Passing.new)
        @lines
      end

      private

      def mount(location, app, passing)
        @lines << ["mount", location]
        step(app, location, passing)
      end

      def step(app, location, passing)
        while first_time?(app)
          return branches(app, location, passing) if Inner.branches?(app)

          left_out(app, passing)
          sender = Senders.of(app)
          send_by(sender, passing) if sender
          return if sender&.last?

          passing.pass(app) unless sender
          app = Inner.of(app)
        end
      end

      def first_time?(app)
        return false if app.nil? || @seen.size >= DEEPEST || @seen[app]

        @seen[app] = true
      end

      def send_by(sender, passing)
        return @lines << ["app", sender.name, sender.root] unless sender.lines

        @lines << ["rule", sender.name, sender.root]
        @lines << ["behind", passing.obstacle] if passing.obstacle
        @lines.concat(sender.lines).concat(passing.lines)
      end

      # Where Rails leaves its files to the web server, adds the server in place of the omitted middleware.
      def left_out(app, passing)
        return unless Inner.name(app) == "ActionDispatch::Executor" && !@left_out

        @left_out = Senders.left_to_the_server
        send_by(@left_out, passing) if @left_out
      end

      # Walks `map` of Rack::Builder, and Rack::Cascade.
      def branches(app, location, passing)
        return cascade(app, location, passing) if Inner.name(app) == "Rack::Cascade"

        here, below = Inner.mounts(app).partition { |path, _| path.empty? }
        # The app at the root belongs to the current mount.
        here.each { |_, inner| step(inner, location, passing.dup) }
        below.each { |path, inner| mount(location + path, inner, passing.dup) }
      end

      # The next app of a cascade is tried only after one that sends nothing but files.
      def cascade(app, location, passing)
        Inner.cascade(app).each do |one|
          sender = Senders.of(one)
          return step(one, location, passing) unless sender&.files_alone?

          send_by(sender, passing)
          @lines << ["next"]
        end
      end
    end
  end
end
