# frozen_string_literal: true

require "firebrick/service"

module Firebrick
  # The services that the app declares, by name.
  class Services
    def initialize
      @declared = {}
      @others = {}
    end

    # location:: who declares it
    def declare(name, location, **options, &block)
      place = "#{location.path.delete_prefix("#{Dir.pwd}/")}:#{location.lineno}"
      service = Service.new(name, place, **options, &block)
      refuse service, RuntimeError, "services are declared while the app is loaded, which it is" if @declared.frozen?
      other = @others[service.name] || @declared[service.name]&.place
      refuse service, ArgumentError, "#{other} declares a service of this name; give one another name" if other
      @declared[service.name] = service
    end

    # The services of the settings: lines of name and place.
    def others=(lines)
      @others = lines.to_h { |line| line.split(" ", 2) }
    end

    # The service of this name. Raises KeyError.
    def fetch(name)
      @declared.fetch(name) { raise KeyError, "the app declares no service of this name" }
    end

    # The app is loaded: what the template reports. From now on there can be no others.
    def facts
      @declared.freeze.each_value.flat_map(&:facts)
    end

    private

    def refuse(service, error, why)
      raise error, "Firebrick.service(#{service.name.inspect}) at #{service.place}: #{why}"
    end
  end
end
