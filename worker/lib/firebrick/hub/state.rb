# frozen_string_literal: true

require "firebrick/hub/connection_token"
require "firebrick/hub/records"

module Firebrick
  module Hub
    # The variables of a connection or channel as a text, which the front keeps between two calls.
    #
    # Contract: records of the database travel as their Global IDs and are looked up again; one that is gone becomes
    # nil. Other values travel by Marshal: the text never leaves the server. A variable that cannot be dumped, or is
    # longer than LONGEST, is left out, which the log says once.
    class State
      # Bytes of one variable.
      LONGEST = 8 << 10

      # A record, by its Global ID.
      Located = Struct.new(:gid)

      @told = {}
      @lock = Mutex.new

      class << self
        # Returns whether the log should name the variable, which is so once in a process.
        def tell?(key)
          @lock.synchronize { @told.key?(key) ? false : @told[key] = true }
        end
      end

      # own:: names of variables that belong to Action Cable
      def initialize(object, own)
        @object = object
        @own = own
      end

      # Returns the text; empty without any variables.
      def dump
        names = @object.instance_variables - @own
        variables = names.to_h { |name| [name, text_of(name)] }.compact
        variables.empty? ? "" : [Marshal.dump(variables)].pack("m0")
      end

      # Sets the variables of a text. A connection that has begun by a token has its identifiers instead, as JSON, until
      # the first answer.
      def load(text)
        return if text.empty?
        return ConnectionToken.identify(@object, text) if text.start_with?("{")

        variables = Marshal.load(text.unpack1("m0")) # rubocop:disable Security/MarshalLoad
        variables.each do |name, value|
          @object.instance_variable_set(name, looked_up(Marshal.load(value))) # rubocop:disable Security/MarshalLoad
        end
      end

      private

      def text_of(name)
        text = Marshal.dump(located(@object.instance_variable_get(name)))
        return text if text.bytesize <= LONGEST

        left_out(name, "it has #{text.bytesize} bytes, more than #{LONGEST}")
      rescue TypeError, ArgumentError => e
        left_out(name, e.message)
      end

      def left_out(name, why)
        key = [@object.class.name, name]
        return unless State.tell?(key)

        @object.logger.warn "Firebrick's hub: #{key.join(' ')} is not kept until the next action: #{why}"
        nil
      end

      def located(value)
        case value
        when Array then value.map { |one| located(one) }
        when Hash then value.instance_of?(Hash) ? value.transform_values { |one| located(one) } : value
        else record?(value) ? Located.new(value.to_global_id.to_s) : value
        end
      end

      def record?(value)
        defined?(::GlobalID::Identification) && value.is_a?(::GlobalID::Identification) &&
          value.respond_to?(:persisted?) && value.persisted?
      end

      def looked_up(value)
        case value
        when Array then value.map { |one| looked_up(one) }
        when Hash then value.instance_of?(Hash) ? value.transform_values { |one| looked_up(one) } : value
        when Located then Records.find(value.gid)
        else value
        end
      end
    end
  end
end
