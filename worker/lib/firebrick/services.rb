# frozen_string_literal: true

require "firebrick/service"

module Firebrick
  # The services that the app declares, by name.
  class Services
    def initialize
      @declared = {}
      @others = {}
    end

    # location:: the place of the declaration
    def declare(name, location, **options, &block)
      place = "#{location.path.delete_prefix("#{Dir.pwd}/")}:#{location.lineno}"
      service = Service.new(name, place, **options, &block)
      refuse service, RuntimeError, "services are declared while the app is loaded, which it is" if @declared.frozen?
      other = @others[service.name] || @declared[service.name]&.place
      refuse service, ArgumentError, "#{other} declares a service of this name; give one another name" if other
      @declared[service.name] = service
    end

    # The services of the settings, given as lines of name and place.
    def others=(lines)
      @others = lines.to_h { |line| line.split(" ", 2) }
    end

    # Returns the service of this name. Raises KeyError.
    def fetch(name)
      @declared.fetch(name) { raise KeyError, "the app declares no service of this name" }
    end

    # Returns the facts that the template reports when the app is loaded. After this no service can be
    # declared.
    def facts
      @declared.freeze.each_value.flat_map(&:facts)
    end

    private

    def refuse(service, error, why)
      raise error, "Firebrick.service(#{service.name.inspect}) at #{service.place}: #{why}"
    end
  end
end
