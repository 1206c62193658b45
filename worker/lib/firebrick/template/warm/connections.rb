# frozen_string_literal: true

require "socket"

module Firebrick
  class Template
    module Warm
      # The connections that an app has opened while it served requests. Workers would share them after the fork, and
      # mix their data up, so none may be left.
      class Connections
        # Clients that close their connections and open them again when they are used.
        CLIENTS = { "Redis" => :close, "RedisClient" => :close, "Dalli::Client" => :close }.freeze

        class << self
          # Closes those of known libraries.
          def close
            disconnect_active_record if defined?(::ActiveRecord::Base)
            ::Sequel::DATABASES.each(&:disconnect) if defined?(::Sequel::DATABASES)
            CLIENTS.each do |name, close|
              next unless Object.const_defined?(name)

              ObjectSpace.each_object(Object.const_get(name)) { |client| quietly { client.public_send(close) } }
            end
          end

          private

          def disconnect_active_record
            handler = ::ActiveRecord::Base.connection_handler
            has_list = ::ActiveRecord.version >= Gem::Version.new("7.1")
            pools = has_list ? handler.connection_pool_list(:all) : handler.all_connection_pools
            pools.each { |pool| quietly { pool.disconnect! } }
          end

          # An object that was never connected, or only half made.
          def quietly
            yield
          rescue StandardError
            nil
          end
        end

        def initialize
          @before = sockets
        end

        # Returns the addresses of connections that are open and were not before; nil where that cannot be known.
        def left
          now = sockets
          return unless now && @before

          (now.keys - @before.keys).filter_map { |inode| peer(now[inode]) }
        end

        private

        # Returns the descriptors of sockets by their inodes; nil without /proc.
        def sockets
          Dir.children("/proc/self/fd").each_with_object({}) do |number, found|
            inode = File.readlink("/proc/self/fd/#{number}")[/\Asocket:\[(\d+)\]\z/, 1]
            found[inode] = Integer(number) if inode
          rescue SystemCallError
            # Closed meanwhile: the descriptor of the folder itself.
            next
          end
        rescue SystemCallError
          nil
        end

        # Returns the address at the other end; nil if it is not connected.
        def peer(descriptor)
          socket = BasicSocket.for_fd(descriptor)
          socket.autoclose = false
          socket.remote_address.inspect_sockaddr
        rescue SystemCallError
          nil
        end
      end
    end
  end
end
