# frozen_string_literal: true

require "firebrick/hub/answer"
require "firebrick/hub/state"
require "firebrick/hub/timers"
require "json"
require "stringio"

module Firebrick
  module Hub
    # One call of the front: restores connection and channels, carries the command out, and answers with what has
    # changed.
    class Call
      # Fields of the env that belong to the call and not to the client's handshake.
      OF_CALL = %w[CONTENT_LENGTH CONTENT_TYPE RAW_POST_DATA rack.request.form_input rack.request.form_hash
                   rack.request.form_vars action_dispatch.request.request_parameters
                   action_dispatch.request.parameters].freeze
      # Variables that Action Cable sets only later, or remembers.
      OF_CONNECTION = %i[@firebrick_answer @firebrick_session @request @connection_identifier @protocol].freeze
      OF_CHANNEL = %i[@_streams @active_periodic_timers].freeze

      def initialize(server, env)
        @server = server
        @order = read(env["rack.input"])
        @env = handshake(env)
        @answer = Answer.new
      end

      def response
        @connection = @server.config.connection_class.call.new(@server, @env)
        @own = @connection.instance_variables | OF_CONNECTION
        @connection.firebrick_call(@order, @answer)
        return not_found if connecting? && !@connection.send(:allow_request_origin?)

        carry_out
        raise @error if @error && !@answer.needs_socket?

        @answer.response
      end

      private

      # Middleware may have read the body before.
      def read(input)
        input.rewind if input.respond_to?(:rewind)
        JSON.parse(input.read)
      end

      # Returns the env as that of the GET with which the client has opened the WebSocket.
      def handshake(env)
        env.except(*OF_CALL).merge("REQUEST_METHOD" => "GET", "rack.input" => StringIO.new("".b))
      end

      def connecting?
        @order["command"] == "connect"
      end

      # Action Cable's response to a client that may not connect.
      def not_found
        [404, { "content-type" => "text/plain" }, ["Page not found"]]
      end

      # Runs the command in the callbacks in which Action Cable runs all of the app's code.
      def carry_out
        @connection.worker_pool.work(@connection) do
          connecting? ? connect : command
        rescue StandardError => e
          # The callbacks log an exception and go on.
          @error = e
        end
      end

      def connect
        @connection.connect if @connection.respond_to?(:connect)
        identifier = @connection.connection_identifier
        remote = @connection.send(:internal_channel) if identifier.present?
        @answer.add(connection: state_of(@connection).dump, remote: remote)
      rescue ::ActionCable::Connection::Authorization::UnauthorizedError
        @connection.close(reason: ::ActionCable::INTERNAL[:disconnect_reasons][:unauthorized], reconnect: false)
      end

      def command
        state_of(@connection).load(@order["connection"])
        @order["channels"].each { |identifier, text| restore(identifier, text) } unless @order["command"] == "subscribe"
        return disconnect if @order["command"] == "disconnect"

        execute(@order["command"])
        @answer.add(changed)
      end

      def execute(command)
        channel = known[@order["identifier"]]
        return @answer.add(timers: Timers.run(channel, Integer(@order["data"]))) if command == "periodic"

        data = { "command" => command == "perform" ? "message" : command, "identifier" => @order["identifier"],
                 "data" => @order["data"] }.compact
        # Rails 7.1 has callbacks around it.
        return @connection.handle_channel_command(data) if @connection.respond_to?(:handle_channel_command)

        @connection.subscriptions.execute_command(data)
      end

      # Returns the state after the command.
      def changed
        connection = state_of(@connection).dump
        channel = known[@order["identifier"]]
        { connection: (connection unless connection == @order["connection"]),
          channel: channel && state_of_channel(channel).dump,
          rejected: (true if @order["command"] == "subscribe" && channel.nil?) }
      end

      # Lets each channel, and then the connection, take its leave. An exception in one does not stop the others.
      def disconnect
        known.each_value.to_a.each do |channel|
          @connection.subscriptions.remove_subscription(channel)
        rescue StandardError => e
          @error = e
        end
        @connection.disconnect if @connection.respond_to?(:disconnect)
      end

      # Makes a channel as it was, without running `subscribed`.
      def restore(identifier, text)
        options = ::ActiveSupport::JSON.decode(identifier).with_indifferent_access
        kind = options[:channel].safe_constantize
        return unless kind && ::ActionCable::Channel::Base >= kind

        channel = kind.new(@connection, identifier, options)
        channel.instance_variable_set(:@subscription_confirmation_sent, true)
        state_of_channel(channel).load(text)
        known[identifier] = channel
      end

      # Returns Action Cable's channels by identifier.
      def known
        @connection.subscriptions.send(:subscriptions)
      end

      def state_of(connection)
        State.new(connection, @own)
      end

      # The variables that every channel has are not part of it.
      def state_of_channel(channel)
        @of_every_channel ||= ::ActionCable::Channel::Base.new(@connection, "{}", {}).instance_variables | OF_CHANNEL
        State.new(channel, @of_every_channel)
      end
    end
  end
end
