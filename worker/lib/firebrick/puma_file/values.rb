# frozen_string_literal: true

require "etc"
require "socket"

module Firebrick
  class PumaFile
    # Converts values as Puma does.
    module Values
      # Returns an Integer; nil for anything else, which the front reports.
      def whole(value)
        Integer(value, exception: false)
      end

      # Returns the number of workers in a text; nil if there is none.
      def number(workers)
        case workers.to_s.strip
        when "" then nil
        when "auto" then Etc.nprocessors
        else workers[/\A\s*\d+/].to_i
        end
      end

      # Looks for an IPv6 address other than the loopback, as Puma 8 does.
      def ipv6?
        Socket.getifaddrs.any? { |found| found.addr&.ipv6? && !found.addr.ipv6_loopback? }
      rescue SystemCallError
        false
      end

      def in_brackets(host)
        host.to_s.include?(":") && !host.start_with?("[") ? "[#{host}]" : host
      end
    end
  end
end
