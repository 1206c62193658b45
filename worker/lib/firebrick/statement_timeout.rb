# frozen_string_literal: true

require "firebrick/report"
require "firebrick/statement_timeout/adapters"
require "firebrick/statement_timeout/deadline"
require "firebrick/statement_timeout/mysql"
require "firebrick/statement_timeout/postgresql"

module Firebrick
  # `timeouts.statement`: a query of Active Record takes no longer than is left of `timeouts.worker`.
  #
  # Contract:
  # 1. The limit of a connection is set before a statement, on the thread or fiber that serves the request, and never to
  #    more than is left. It stays while it is between LEAST and all of what is left; requests that take a tenth of
  #    their time or less share one, so that most of them set none.
  # 2. A shorter limit that the connection has by itself stays. A user without a request gets that of the connection
  #    back before its first statement, and so does a body that is sent after the app has returned.
  # 3. In a transaction the limit is local to it, so that a rollback cannot restore one that is not known here.
  # 4. Databases other than PostgreSQL and MySQL, other libraries, and processes without Active Record, are left alone.
  #    An error while the limit is set is logged once, and left to the statement.
  module StatementTimeout
    # The parts of the time left: that which is set, and the least that is not replaced.
    AIM = 0.9
    LEAST = 0.8

    # The names of the classes of connections of drivers, with what is known about the database.
    DIALECTS = { "PG::Connection" => Postgresql, "Mysql2::Client" => Mysql, "Trilogy" => Mysql }.freeze

    # The beginnings of the names of their errors.
    DRIVERS = %w[PG:: Mysql2:: Trilogy].freeze

    KEY = :firebrick_statement_timeout

    # The app, whose requests have a time limit.
    class LimitedApp
      def initialize(app)
        @app = app
      end

      def call(env)
        StatementTimeout.during_request { @app.call(env) }
      end
    end

    class << self
      # Returns the app with the time limit of its requests. Called before the fork.
      # mode:: session or transaction
      def wrap(app, mode)
        @mode = mode
        LimitedApp.new(app)
      end

      # Sets the time of a request; nil: none.
      attr_writer :seconds

      # Returns the Deadline of the request that this thread or fiber serves; nil without one.
      def current
        deadline = own
        deadline if deadline&.runs?
      end

      def during_request
        return yield unless @seconds && (@installed || install)

        before = own
        deadline = Deadline.new(@seconds)
        self.own = deadline
        yield
      ensure
        if deadline
          deadline.over
          self.own = before
        end
      end

      # Prepares the class of an adapter.
      def watch(adapter)
        return if @watched[adapter]

        @lock.synchronize do
          adapter.prepend(Adapters::Database) unless adapter < Adapters::Database
          @watched = @watched.dup.update(adapter => true)
        end
      end

      # Returns the limit of a connection; nil for a database that has none.
      def limit_of(raw, adapter)
        dialect = DIALECTS[raw.class.name] or return
        dialect.new(raw, adapter, @mode == "transaction")
      end

      # An error of the driver is left to the statement that follows. Others are not its own, such as that of a Timeout.
      def contain
        yield
      rescue StandardError => e
        raise unless of_driver?(e)

        log(e) unless @logged
      end

      def of_driver?(error)
        error.class.name.to_s.start_with?(*DRIVERS)
      end

      private

      # The storage of fibers is inherited by fibers and threads. Before Ruby 3.2 there is none.
      if Fiber.respond_to?(:[])
        def own
          Fiber[KEY]
        end

        def own=(deadline)
          Fiber[KEY] = deadline
        end
      else
        def own
          Thread.current[KEY]
        end

        def own=(deadline)
          Thread.current[KEY] = deadline
        end
      end

      def log(error)
        @logged = true
        Report.log("firebrick: #{Exchange.name}: timeouts.statement: a query cannot be limited: #{error.message}")
      end

      # An app may load Active Record late, or never.
      def install
        return false unless defined?(::ActiveRecord::ConnectionAdapters::AbstractAdapter)

        @lock.synchronize do
          Adapters.follow(::ActiveRecord::ConnectionAdapters::AbstractAdapter) unless @installed
          @installed = true
        end
      end
    end

    @watched = {}.compare_by_identity
    @lock = Mutex.new
  end
end
