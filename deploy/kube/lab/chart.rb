# frozen_string_literal: true

require "yaml"
require_relative "schemas"

module Kubernetes
  # Lints, renders and checks the chart with the program of deploy/kube/chart.
  class Chart
    FOLDER = File.join(ROOT, "deploy", "chart")

    # The result for some values. error: the message of the chart or its schema; rendered: text by name of template; invalid: the faults of
    # objects.
    Answer = Struct.new(:error, :lint, :rendered, :valid, :invalid, keyword_init: true) do
      # Returns all objects.
      def objects
        rendered.select { |name, _| name.end_with?(".yaml") }.values.flat_map { |text| YAML.load_stream(text) }.compact
      end

      # Returns the only object of a kind; nil if there is none.
      def [](kind)
        found = objects.select { |one| one["kind"] == kind }
        raise "there are #{found.size} objects of kind #{kind}" if found.size > 1

        found.first
      end
    end

    # Returns the path of the checker.
    def self.program(cache) = cache.program("chart", ".", "chart", flags: Cache::QUICK)

    def initialize(cache = Cache.new)
      @cache = cache
    end

    def render(values, name: "shop", namespace: "web") = ask("values" => values, "name" => name, "namespace" => namespace)

    # Checks a YAML text.
    def check(manifest) = ask("manifest" => manifest)

    def close
      return unless @program

      @program.close
      @program = nil
    end

    private

    def ask(question)
      program.puts(JSON.generate(question))
      program.flush
      line = program.gets or raise Failure, "the chart's checker has ended: its message is above"
      Answer.new(**JSON.parse(line, symbolize_names: false).transform_keys(&:to_sym))
    end

    def program
      @program ||= IO.popen([Chart.program(@cache), FOLDER, Schemas.new(@cache).folder], "r+")
    end
  end
end
