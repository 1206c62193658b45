# frozen_string_literal: true

require "etc"
require "socket"

module Firebrick
  class PumaFile
    # What Puma would make of values.
    module Values
      # What is no number is judged by the front.
      def whole(value)
        Integer(value, exception: false)
      end

      # How many workers a text asks for; nil if it does not say.
      def number(workers)
        case workers.to_s.strip
        when "" then nil
        when "auto" then Etc.nprocessors
        else workers[/\A\s*\d+/].to_i
        end
      end

      # As Puma 8 looks for it: an address besides that of the machine itself.
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
