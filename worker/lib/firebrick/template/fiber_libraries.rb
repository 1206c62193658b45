# frozen_string_literal: true

require "firebrick/template/connection_pool"
require "firebrick/template/known_libraries"
require "firebrick/template/middleware"

module Firebrick
  class Template
    # The effects of an app's libraries on the other fibers of their thread. The same list serves the start of a server
    # with fibers, `firebrick check` and `firebrick tune`; docs/fibers.md contains it as a table.
    class FiberLibraries
      Library = KnownLibraries::Library

      RAILS = "config.active_support.isolation_level = :fiber"
      SEQUEL = "Sequel.extension :fiber_concurrency"

      # @param app [#call] the app
      # @param fibers [Integer] the number per thread; 0 while they are off
      # @param threads [Integer] the number per worker
      def initialize(app, fibers, threads)
        @app = app
        @fibers = fibers
        @threads = threads
      end

      # @return [Array<Library>] the loaded libraries, the worst first; Ruby itself counts as one
      def to_a
        always = KnownLibraries::ALWAYS.select { |name, _| loaded(name) }.values
        all = [ruby, native_threads, rack_timeout, active_record, sequel, pg, *always].compact
        all.sort_by.with_index { |library, at| [%w[forbids stops slows waits].index(library.verdict), at] }
      end

      # Takes precautions for libraries that are loaded and were not found in use.
      def guard
        timeout = loaded(KnownLibraries::TIMEOUT)
        timeout.prepend(Fibers::PassingTimeout) if timeout.is_a?(Class)
      end

      private

      # Looks a constant up without loading it, as an autoload would.
      def loaded(name)
        name.split("::").inject(Object) { |scope, part| constant(scope, part) }
      end

      def constant(scope, name)
        return unless scope.is_a?(Module) && scope.const_defined?(name, false)

        scope.const_get(name, false) unless scope.autoload?(name)
      end

      def ruby
        text = "others run during sleep, sockets, pipes, locks, queues and child processes; " \
               "reading files, File#flock and C code that waits by itself stop the thread"
        text += "; so does a wait inside Enumerator#next, until Ruby 3.2" if RUBY_VERSION.to_f < 3.2
        Library.new("waits", "Ruby #{RUBY_VERSION}", text)
      end

      # With RUBY_MN_THREADS=1, Ruby moves its threads from one native thread to another.
      def native_threads
        return unless ENV["RUBY_MN_THREADS"] == "1"

        Library.new("forbids", "RUBY_MN_THREADS", "RUBY_MN_THREADS=1 moves threads while their fibers wait: unset it")
      end

      # A Gemfile loads rack-timeout for the whole app, even where only its railtie would use it.
      def rack_timeout
        return unless loaded(KnownLibraries::TIMEOUT)

        used = Middleware.new(@app).uses?(KnownLibraries::TIMEOUT)
        used ? KnownLibraries::TIMEOUT_USED : KnownLibraries::TIMEOUT_LOADED
      end

      def active_record
        return unless loaded("ActiveRecord").respond_to?(:version)

        why = why_not_active_record
        return Library.new("forbids", "Active Record", why) if why

        pool || Library.new("waits", "Active Record",
                            "a request that uses the database holds a connection of the pool: set pool in " \
                            "config/database.yml to as many as do so at a time")
      end

      def why_not_active_record
        version = ActiveRecord.version
        if version < Gem::Version.new("7.1")
          return "Active Record #{version} gives each thread one connection, which its fibers would share. " \
                 "It takes 7.1 or later with #{RAILS}"
        end
        isolation = loaded("ActiveSupport::IsolatedExecutionState")
        return if isolation.nil? || isolation.isolation_level == :fiber

        "Active Support keeps the state of a request by thread, so fibers would mix requests up. " \
          "Add to config/application.rb: #{RAILS}"
      end

      def pool
        size = ConnectionPool.size
        return if @fibers.zero? || size.nil? || size >= seats

        Library.new("slows", "Active Record",
                    "Active Record's pool has #{size} connections for #{seats} fibers: " \
                    "requests wait for one another there, and raise after " \
                    "#{ConnectionPool.config.checkout_timeout} s (pool and checkout_timeout in config/database.yml)")
      end

      # Returns the number of requests that a worker serves at a time.
      def seats
        @fibers * @threads
      end

      def sequel
        return unless loaded("Sequel") && Sequel.respond_to?(:current)

        if Sequel.current.is_a?(Thread)
          return Library.new("forbids", "Sequel",
                             "Sequel gives each thread one connection, which its fibers would share. " \
                             "Add where the app loads it: #{SEQUEL}")
        end

        Library.new("waits", "Sequel",
                    "a request holds a connection: set max_connections to as many as do so at a time")
      end

      def pg
        return unless loaded("PG::Connection")

        version = Gem::Version.new(PG::VERSION)
        if version < Gem::Version.new("1.3")
          return Library.new("stops", "pg #{version}", "waits with the thread: take 1.3 or later")
        end

        Library.new("waits", "pg", "others run while it waits")
      end
    end
  end
end
