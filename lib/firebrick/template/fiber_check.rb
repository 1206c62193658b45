# frozen_string_literal: true

require "firebrick/errors"

module Firebrick
  class Template
    # Whether the libraries of an app get along with requests on fibers. Asked when the app is loaded: what would mix
    # the requests up is refused, what would only be slow is told.
    class FiberCheck
      # What these libraries wait for stops the thread, with all of its fibers.
      BLOCKING = {
        "Mysql2::Client" => "mysql2 waits for results with the thread, apart from their first byte",
        "SQLite3::Database" => "sqlite3 reads and writes files with the thread",
        "Redis::Connection::Hiredis" => "hiredis waits with the thread; redis with its Ruby driver does not"
      }.freeze
      RAILS = "config.active_support.isolation_level = :fiber"
      SEQUEL = "Sequel.extension :fiber_concurrency"

      def initialize(fibers, threads)
        @fibers = fibers
        @threads = threads
      end

      # Notes for the banner, as facts for `booted`.
      #
      # @raise [Firebrick::Error] the app would mix requests up
      def facts
        return [] if @fibers.zero?

        refuse_active_record
        refuse_sequel
        [native_threads, pool, *blocking].compact.map { |note| ["note", note] }
      end

      private

      # What an app names may be loaded when it is asked for: that is not wanted here.
      def loaded(name)
        name.split("::").inject(Object) { |scope, part| constant(scope, part) }
      end

      def constant(scope, name)
        return unless scope&.const_defined?(name, false)

        scope.const_get(name, false) unless scope.autoload?(name)
      end

      def refuse_active_record
        return unless loaded("ActiveRecord::Base")

        version = ActiveRecord.version
        if version < Gem::Version.new("7.1")
          refuse "Active Record #{version} gives each thread one connection, which its fibers would share. " \
                 "It takes 7.1 or later with #{RAILS}"
        end
        isolation = loaded("ActiveSupport::IsolatedExecutionState")
        return if isolation.nil? || isolation.isolation_level == :fiber

        refuse "Active Support keeps the state of a request by thread, so fibers would mix requests up. " \
               "Add to config/application.rb: #{RAILS}"
      end

      def refuse_sequel
        return unless loaded("Sequel") && Sequel.respond_to?(:current) && Sequel.current.is_a?(Thread)

        refuse "Sequel gives each thread one connection, which its fibers would share. " \
               "Add where the app loads it: #{SEQUEL}"
      end

      def refuse(why)
        raise Error, "fibers = #{@fibers}: #{why}, or set fibers to \"off\" (docs/fibers.md)"
      end

      # Ruby moves its threads from one native thread to another then.
      def native_threads
        refuse "RUBY_MN_THREADS=1 moves threads while their fibers wait: unset it" if ENV["RUBY_MN_THREADS"] == "1"
      end

      def pool
        return unless loaded("ActiveRecord::Base")

        size = ActiveRecord::Base.connection_db_config.pool
        all = @fibers * @threads
        return if size >= all

        "Active Record's pool has #{size} connections for #{all} fibers: requests wait for one another there " \
          "(pool in config/database.yml)"
      rescue StandardError
        nil # there is no database
      end

      def blocking
        BLOCKING.filter_map { |name, why| "fibers: #{why}" if loaded(name) }
      end
    end
  end
end
