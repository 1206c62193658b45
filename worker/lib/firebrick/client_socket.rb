# frozen_string_literal: true

require "socket"
require "firebrick/departed_client"

module Firebrick
  # The socket of a connection that the app has taken over. The front holds the client's connection, and this is a
  # Unix socket. But libraries expect addresses and TCP options of the client's connection, so those methods return
  # the client's; the front has set the TCP options already.
  module ClientSocket
    include DepartedClient

    # Levels of options that exist only for the client's connection.
    LEVELS = [Socket::IPPROTO_TCP, Socket::IPPROTO_IP, Socket::IPPROTO_IPV6].freeze
    NAMES = %w[TCP IP IPV6].freeze

    # The env of the request, for its addresses.
    attr_writer :env

    def setsockopt(level, name = nil, value = nil)
      option = level.is_a?(Socket::Option) ? level : nil
      return super(*[level, name, value].first(option ? 1 : 3)) unless of_client?(option ? option.level : level)

      options[number_of(option ? option.optname : name)] = option ? option.data : value
      0
    end

    # Returns an option as set here. An option that was not set reads as on, as TCP_NODELAY is.
    def getsockopt(level, name)
      return super unless of_client?(level)

      value = options.fetch(number_of(name), 1)
      value = 1 if value == true
      value = 0 if value == false || value.nil?
      data = value.is_a?(Integer) ? [value].pack("i") : value
      Socket::Option.new(family, level_of(level), number_of(name), data)
    end

    def remote_address
      address ? Addrinfo.tcp(address, port_of("REMOTE_PORT")) : super
    end

    def local_address
      address ? Addrinfo.tcp(host, port_of("SERVER_PORT")) : super
    rescue SocketError
      Addrinfo.tcp(address.include?(":") ? "::" : "0.0.0.0", port_of("SERVER_PORT"))
    end

    # Returns the same as TCPSocket#peeraddr: family, port, name and address.
    def peeraddr(*)
      address ? described(remote_address) : super()
    end

    def addr(*)
      address ? described(local_address) : super()
    end

    def getpeername
      address ? remote_address.to_sockaddr : super
    end

    def getsockname
      address ? local_address.to_sockaddr : super
    end

    private

    def options
      @options ||= {}
    end

    def of_client?(level)
      LEVELS.include?(level) || NAMES.include?(level.to_s.delete_prefix("IPPROTO_"))
    end

    def level_of(level)
      level.is_a?(Integer) ? level : Socket.const_get("IPPROTO_#{level.to_s.delete_prefix('IPPROTO_')}")
    end

    def number_of(name)
      return name if name.is_a?(Integer)

      name = name.to_s
      full = [name, "TCP_#{name}", "IP_#{name}", "IPV6_#{name}"].find { |one| Socket.const_defined?(one) }
      full ? Socket.const_get(full) : raise(SocketError, "unknown socket option name: #{name}")
    end

    # Returns the client's address; nil if the client connected over a Unix socket.
    def address
      @env["REMOTE_ADDR"] if @env && @env["REMOTE_PORT"]
    end

    def host
      name = @env["SERVER_NAME"].to_s.delete("[]")
      name.match?(/\A[\d.]+\z|:/) ? name : raise(SocketError, "no address")
    end

    def port_of(key)
      @env[key].to_i
    end

    def family
      address&.include?(":") ? :INET6 : :INET
    end

    def described(info)
      [info.ipv6? ? "AF_INET6" : "AF_INET", info.ip_port, info.ip_address, info.ip_address]
    end
  end

  # The socket that `rack.hijack` returns.
  class HijackedSocket < UNIXSocket
    include ClientSocket
  end
end
