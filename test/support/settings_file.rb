# frozen_string_literal: true

# Writes a firebrick.toml: a table per topic, plain values and tables on one line. Durations are in seconds.

module SettingsFile
  module_function

  # { limits: { max_uri: 512 } } as TOML; keys outside a table come first. A String is used unchanged.
  def render(settings)
    return settings if settings.is_a?(String)

    plain, tables = settings.partition { |_, value| !value.is_a?(Hash) }
    lines = plain.map { |key, value| pair(key, value) }
    tables.each { |name, pairs| lines << "[#{name}]" << pairs.map { |key, value| pair(key, value) } }
    lines.flatten.join("\n") << "\n"
  end

  def pair(key, value)
    "#{key} = #{literal(value)}"
  end

  def literal(value)
    case value
    when String then value.dump
    when Hash then "{ #{value.map { |key, one| pair(key, one) }.join(', ')} }"
    when Array then "[#{value.map { |one| literal(one) }.join(', ')}]"
    when Integer, Float, true, false then value.to_s
    else raise ArgumentError, "no TOML for #{value.inspect}"
    end
  end
end
