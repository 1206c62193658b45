# frozen_string_literal: true

require "json"
require "yaml"
require_relative "chart"

module Kubernetes
  # The values of the chart as documented in its files: values.yaml with a comment above each key, values.schema.json, and the table in
  # README.md, which is made from the comments.
  class Values
    # A documented key with everything below it: `image.tag`.
    Entry = Struct.new(:key, :default, :meaning)

    BEGINNING = "<!-- The table is made from values.yaml: make docs-chart -->\n"

    def initialize(folder = Chart::FOLDER)
      @folder = folder
    end

    def defaults = @defaults ||= YAML.safe_load(text("values.yaml"))

    def schema = @schema ||= JSON.parse(text("values.schema.json"))

    # Returns the documented keys, in the order of the file.
    def entries = @entries ||= comments.map { |key, meaning| Entry.new(key, defaults.dig(*key.split(".")), meaning) }

    # Returns keys without a comment, on themselves or on a parent. A section whose parts all have comments needs none.
    def undocumented(values = defaults, path = [])
      return [] if comments.key?(path.join("."))
      return [path.join(".")] unless values.is_a?(Hash) && values.any?

      values.flat_map { |key, value| undocumented(value, [*path, key]) }
    end

    # Returns the table for README.md.
    def table
      ["| value | default | meaning |", "|---|---|---|",
       *entries.map { |one| "| `#{one.key}` | `#{inline(one.default)}` | #{one.meaning.gsub('|', '\\|')} |" }].map { |line| "#{line}\n" }.join
    end

    # Returns the table in README.md.
    def written = text("README.md").split(BEGINNING, 2)[1].to_s[/\A(?:\|.*\n)+/]

    def write
      path = File.join(@folder, "README.md")
      before, after = File.read(path).split(BEGINNING, 2)
      File.write(path, "#{before}#{BEGINNING}#{table}#{after.sub(/\A(?:\|.*\n)*/, '')}")
    end

    private

    def text(name) = File.read(File.join(@folder, name))

    # Formats a value as one line of YAML.
    def inline(value)
      case value
      when Hash then value.empty? ? "{}" : "{#{value.map { |key, one| "#{key}: #{inline(one)}" }.join(', ')}}"
      when Array then "[#{value.map { |one| inline(one) }.join(', ')}]"
      when String then value.match?(/\A[A-Za-z][\w.:-]*\z/) ? value : value.to_json
      else value.to_json
      end
    end

    # Returns the comment above each key, by path.
    def comments
      @comments ||= begin
        path = []
        above = []
        text("values.yaml").each_line.with_object({}) do |line, found|
          if (comment = line[/\A\s*# ?(.*)$/, 1])
            above << comment
          elsif (match = line.match(/\A( *)([A-Za-z]\w*):/))
            path = [*path.take(match[1].size / 2), match[2]]
            found[path.join(".")] = above.join(" ") if above.any?
            above = []
          else
            above = []
          end
        end
      end
    end
  end
end
