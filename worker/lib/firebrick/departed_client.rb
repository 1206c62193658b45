# frozen_string_literal: true

require "rbconfig"
require "socket"
require "firebrick/errors"

module Firebrick
  # The exception that the app gets from its client's socket when the client has disconnected: the socket's Errno::EPIPE
  # or Errno::ECONNRESET, marked as Disconnected. In a block that the app has passed to a client of another server it is
  # ClientGone instead: such a library would take the error for one of its own connection, and retry the other server.
  module DepartedClient
    ERRORS = [Errno::EPIPE, Errno::ECONNRESET].freeze
    # Methods that send or receive. Methods that call a block of the app for each line are left out, because an error
    # raised in the block does not concern this socket.
    CALLS = %i[write syswrite write_nonblock send sendmsg sendmsg_nonblock read readpartial read_nonblock sysread gets
               getc getbyte readline readlines readchar readbyte eof? eof recv recv_nonblock recvmsg
               recvmsg_nonblock].freeze

    # Gems that are clients of servers. Gems built on Net::HTTP are recognised by that.
    GEMS = %w[async-http aws-sdk-core bunny curb dalli elastic-transport ethon excon faraday faraday-[a-z_-]+
              grpc http httparty httpclient httpx manticore mechanize mongo net-[a-z-]+ open-uri opensearch-ruby patron
              protocol-http[12]? redis redis-client rest-client stripe typhoeus].freeze
    RUBY = Regexp.escape(RbConfig::CONFIG["rubylibdir"])
    LIBRARIES = %r{\A#{RUBY}/(?:net/|open-uri\.rb)|/gems/(?:#{GEMS.join('|')})-\d}.freeze
    private_constant :GEMS, :RUBY, :LIBRARIES

    class << self
      # Returns the exception to raise instead of +error+, depending on the caller.
      def error(error)
        return ClientGone.new("the client has gone") if in_client_of_another_server?

        error.extend(Disconnected)
      end

      private

      def in_client_of_another_server?
        caller_locations.any? { |location| LIBRARIES.match?(location.path.to_s) }
      end
    end

    CALLS.each do |name|
      class_eval <<~RUBY, __FILE__, __LINE__ + 1
        def #{name}(*)                # def write(*)
          super
        rescue *ERRORS => e
          raise DepartedClient.error(e)
        end
      RUBY
      # JRuby 9.3 neither needs it nor has it.
      ruby2_keywords(name) if respond_to?(:ruby2_keywords, true)
    end

    # `IO.copy_stream` to such a socket, which writes to its descriptor.
    module Copying
      def copy_stream(source, target, *)
        super
      rescue Errno::EPIPE => e
        raise e unless target.is_a?(DepartedClient)

        raise DepartedClient.error(e)
      end
    end
    IO.singleton_class.prepend(Copying)
  end
end
