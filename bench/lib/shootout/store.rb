# frozen_string_literal: true

require "fileutils"
require "json"
require "time"
require_relative "../machine"
require_relative "../json_lines"
require_relative "figures"
require_relative "programs"

module Bench
  module Shootout
    # The results of a scenario as plain data: written to a file after every trial, so that an interrupted run loses nothing,
    # and read again for the report.
    #
    # The file of an earlier run is replaced only once every trial of the new one was measured once.
    class Store
      FOLDER = "plots"

      # All stored results of a chapter, in its order.
      def self.read(output, chapter)
        chapter.keys.filter_map do |key|
          path = path(output, key)
          JSON.parse(File.read(path)) if File.exist?(path)
        rescue JSON::ParserError
          raise Failure, "#{path} is no JSON: delete it, and measure again with #{chapter.typed(key)}"
        end
      end

      def self.path(output, key) = File.join(output, FOLDER, "#{key}.json")

      attr_reader :data

      def initialize(scenario, tables, size, output)
        @path = self.class.path(output, scenario.key)
        @earlier = File.exist?(@path)
        @data = {
          "scenario" => scenario.key, "title" => scenario.title, "started" => Time.now.utc.iso8601, "machine" => Machine.description, "size" => size.to_h.transform_keys(&:to_s),
          "busy" => 0.0, "complete" => false, "missing" => {}, "versions" => {}, "tables" => tables.map { |table| table_data(table) }, "goals" => scenario.goals.map { |goal| goal.to_h.transform_keys(&:to_s) }
        }
        @rows = @data["tables"].flat_map { |table| table["rows"] }.to_h { |row| [row["name"], row] }
      end

      # Records that the scenario cannot be measured at all.
      def skip(text)
        @data["skipped"] = text
        save
      end

      def missing(trial, text) = @rows.fetch(trial.name)["missing"] = text

      # outcome: figures, or a Failure.
      def add(trial, outcome)
        round = outcome.is_a?(Failure) ? { "failure" => outcome.message } : outcome.transform_keys(&:to_s)
        @rows.fetch(trial.name)["rounds"] << round
        save unless @earlier && !once_around?
      end

      # The processors' share that other programs used before a round.
      def busy(share) = @data["busy"] = [@data["busy"], share].max

      # firebrick: path of the binary; others: { name => version } of things that are not a Program.
      def versions(names, firebrick, others = {})
        @data["versions"] = { "firebrick" => Programs.version_line([firebrick, "--version"]), **names.to_h { |name| [name, Programs.version(name)] }, **others }.compact
      end

      def complete
        @data["complete"] = true
        save
      end

      def rounds(trial) = @rows.fetch(trial.name)["rounds"]

      private

      def once_around? = @rows.values.all? { |row| row["missing"] || row["rounds"].any? }

      def save
        @data["ended"] = Time.now.utc.iso8601
        FileUtils.mkdir_p(File.dirname(@path))
        File.write("#{@path}.new", "#{JsonLines.generate(@data, 4)}\n")
        File.rename("#{@path}.new", @path)
      end

      def table_data(table)
        { "title" => table.title, "text" => table.text, "heads" => table.heads, "comparable" => table.comparable,
          "columns" => table.columns.map { |column| column.to_h.transform_keys(&:to_s).merge("metric" => column.metric.to_s) },
          "plots" => table.plots.map { |plot| plot_data(plot, table.trials) },
          "rows" => table.trials.map { |trial| { "name" => trial.name, "cells" => trial.cells, "configuration" => trial.configuration, "apart" => trial.apart, "rounds" => [] } } }
      end

      # groups: the position of each bar, by the name of the trial.
      def plot_data(plot, trials)
        groups = trials.to_h { |trial| [trial.name, plot.groups&.call(trial) || [trial.cells.first, nil]] }
        plot.to_h.transform_keys(&:to_s).merge("metric" => plot.metric.to_s, "groups" => groups)
      end
    end
  end
end
