# frozen_string_literal: true

module Firebrick
  class Template
    # The verdicts on libraries, where they are the same for all versions.
    module KnownLibraries
      # How a library works with fibers:
      # * forbids: it would mix requests up;
      # * stops: the thread stops with all of its fibers while it waits;
      # * slows: requests wait for one another in it;
      # * waits: other fibers run while it waits.
      Library = Struct.new(:verdict, :name, :text) do
        # Returns the fact for the front: three words of one fact.
        def fact
          [Wire::Booted::FIBERS, [verdict, name, text].join("\t")]
        end
      end

      AMONG_THREADS = "keep what it does short, set threads to 2 or more, so that another thread takes over, " \
                      "or let a pool of threads serve its paths (docs/pools.md)"
      # By a constant of the library.
      ALWAYS = {
        "Mysql2::Client" =>
          Library.new("stops", "mysql2",
                      "waits for results with the thread, apart from their first byte: #{AMONG_THREADS}"),
        "SQLite3::Database" =>
          Library.new("stops", "sqlite3", "reads and writes files with the thread: #{AMONG_THREADS}"),
        "Redis::Connection::Hiredis" =>
          Library.new("stops", "hiredis", "waits with the thread: redis with its Ruby driver does not"),
        "RedisClient::HiredisConnection" =>
          Library.new("stops", "hiredis-client", "waits with the thread: redis with its Ruby driver does not"),
        "Redis" => Library.new("waits", "redis", "others run while it waits, with its Ruby driver"),
        "Net::HTTP" => Library.new("waits", "Net::HTTP", "others run while it waits, with TLS too"),
        "Async::Task" =>
          Library.new("waits", "async", "Async { } gets a thread of its own, because it brings a scheduler of its own")
      }.freeze

      # rack-timeout, in the app's middleware and elsewhere.
      TIMEOUT = "Rack::Timeout"
      TIMEOUT_USED =
        Library.new("forbids", "rack-timeout",
                    "rack-timeout ends a request by Thread#raise, which fibers share: it would end another one. " \
                    "Take it out of the middleware (Rails: require: false in the Gemfile): timeouts.worker ends what " \
                    "takes too long, and Timeout.timeout works in a fiber")
      TIMEOUT_LOADED =
        Library.new("waits", "rack-timeout",
                    "loaded, and not among the middleware of the app. A request that reaches it on a fiber passes it " \
                    "by: timeouts.worker ends what takes too long")
    end
  end
end
