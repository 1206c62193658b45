# frozen_string_literal: true

require "firebrick"
require "firebrick/server/arguments"
require "firebrick/server/attachment"

module Firebrick
  # A server for an app that this process has loaded. Requests run in threads of this process, so a debugger has
  # its terminal, reloaded code is used at once, and tests share their transactions with the app. The front, which
  # handles the network, runs as a child. Nothing is forked.
  #
  #   server = Firebrick::Server.new(app, port: 0).start
  #   Net::HTTP.get(URI(server.url))
  #   server.stop
  #
  #   Firebrick::Server.new(app, port: 3000, quiet: false).run
  #
  # A process may have several. In production use the `firebrick` command: it has several workers, and replaces those
  # that hang or die. See docs/development.md.
  class Server
    # app:: any Rack app
    # host:: port::   the address (by default 127.0.0.1, and 9292); port 0 lets the system choose
    # bind::          addresses instead, such as "unix:///tmp/app.sock"; one or an Array
    # threads::       "MIN:MAX" or a number
    # environment::   by default APP_ENV, RACK_ENV, RAILS_ENV or development. In development errors are shown, and INT
    #                 and TERM end #run at once
    # config::        a firebrick.toml; true for the one in +dir+, if there is one, with its static.json and
    #                 public/. Without it all requests go to the app
    # dir::           the folder (the current one)
    # quiet::         print no banner (true)
    # defaults::      settings with lower precedence than options, variables and +config+, such as
    #                 { port: 3000 }
    #
    # All others are flags of `firebrick`: `max_body: "10MB"` is --max-body, `early_hints: false` is --no-early-hints.
    def initialize(app, **options)
      raise ArgumentError, "a Rack app responds to call, #{app.class} does not" unless app.respond_to?(:call)

      @app = app
      @arguments = Arguments.new(**options)
      @lock = Mutex.new
      @attachment = nil
    end

    # Starts the server, and returns itself when it listens. Does nothing if the server runs already.
    #
    # Raises the system's error when an address cannot be bound (Errno::EADDRINUSE), and Firebrick::Error for everything
    # else, such as an invalid setting.
    def start
      @lock.synchronize do
        return self if running?

        @attachment = Attachment.new(@app, @arguments)
        @attachment.start
      end
      self
    end

    # Starts the server, and returns when it has ended: by #stop, or by INT, TERM or QUIT if this is the main thread.
    # Yields the server when it listens. Raises Firebrick::Error when it has ended by itself.
    def run
      start
      traps = trap_signals
      yield self if block_given?
      join
    ensure
      stop(now: true)
      traps&.each { |name, handler| trap(name, handler || "DEFAULT") }
    end

    # Finishes the requests and ends the server. Returns when nothing is left of it: at the latest after
    # `shutdown_timeout` for clients and the same for the app, whose threads are then killed. Called from a thread that
    # serves a request of this server, it returns at once. May be called again, from any thread, and in a trap.
    #
    # now:: closes connections and kills threads without waiting for requests
    def stop(now: false)
      @attachment&.stop(now: now)
      nil
    end

    # Waits until the server has ended. Raises Firebrick::Error when it has not been stopped.
    def join
      @attachment&.join
      nil
    end

    def running?
      !@attachment.nil? && @attachment.running?
    end

    # The addresses on which it listens: `http://127.0.0.1:9292`, `https://…`, `unix:///path`. Empty when it does not
    # run.
    def addresses
      running? ? @attachment.addresses : []
    end

    # The first address.
    def url
      addresses.first
    end

    # The host of the first TCP address; nil if there is none.
    def address
      tcp&.first
    end

    # The port of the first TCP address; nil if there is none.
    def port
      tcp&.last
    end

    # The process id of the front; nil when it does not run.
    def front_pid
      @attachment.front_pid if running?
    end

    private

    def tcp
      match = addresses.map { |url| %r{\Ahttps?://(.+):(\d+)\z}.match(url) }.compact.first
      match && [match[1].delete("[]"), Integer(match[2])]
    end

    # Stops at once in development. Elsewhere the first signal finishes the requests, and the second one stops at once.
    def trap_signals
      return unless Thread.current == Thread.main

      attachment = @attachment
      asked = false
      # Sinatra calls the handler as well, with other arguments.
      handler = proc do
        attachment.order(asked || attachment.development? ? Attachment::HALT : Attachment::DRAIN)
        asked = true
      end
      %w[INT TERM QUIT].map { |name| trapped(name, handler) }.compact.to_h
    end

    def trapped(name, handler)
      [name, trap(name, &handler)]
    rescue ArgumentError
      # Virtual machines reserve QUIT.
      nil
    end
  end
end
