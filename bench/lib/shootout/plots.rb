# frozen_string_literal: true

require "json"
require "open3"
require_relative "markdown"
require_relative "setup"
require_relative "store"

module Bench
  module Shootout
    # The plots of what is stored, drawn by the repository's own `report` crate (its example `plot`).
    class Plots
      OURS = /\Afirebrick/

      # program: words of the command that reads a plot as JSON and writes it as SVG.
      def initialize(program: self.class.program)
        @program = program
      end

      # A program that was built already, else cargo; nil without either.
      def self.program(env: ENV)
        return [env["PLOT"]] if env["PLOT"]

        targets = [env["CARGO_TARGET_DIR"], File.join(Setup::ROOT, "target")].compact
        built = targets.flat_map { |target| Dir[File.join(target, "{release,debug}/examples/plot")] }.max_by { |path| File.mtime(path) }
        return [built] if built

        %W[cargo run --quiet --manifest-path #{Setup::ROOT}/Cargo.toml --package report --example plot --] if Machine.there?("cargo")
      end

      # Draws all plots of the documents. Returns a sentence about missing ones, or nil.
      def draw(output, documents)
        return "no plots were drawn: cargo was not found, and no PLOT=PROGRAM is set" unless @program

        tables = documents.flat_map { |document| document["tables"] }
        tables.each do |table|
          table["plots"].each do |plot|
            problem = one(File.join(output, Store::FOLDER, "#{plot['name']}.svg"), self.class.bars(plot, table))
            return "no plots were drawn: #{problem}" if problem
          end
        end
        nil
      end

      # Converts to the format of the report crate: groups of bars, medians with the spread of the rounds.
      def self.bars(plot, table)
        series = plot["groups"].values.map(&:last).compact.uniq
        groups = Markdown.sorted(table, plot.slice("metric", "better")).group_by { |row| plot["groups"].fetch(row["name"]).first }
        bars = groups.map { |label, rows| group(plot, label, rows, series) }.reject { |one| one["bars"].empty? }
        { "bars" => { "title" => plot["title"], "note" => plot["note"], "x" => { "label" => plot["label"], "unit" => plot["unit"], "from" => 0 },
                      "better" => plot["better"], "series" => series, "groups" => bars } }
      end

      def self.group(plot, label, rows, series)
        rows = series.filter_map { |name| rows.find { |row| plot["groups"].fetch(row["name"]).last == name } } if series.any?
        bars = rows.map { |row| bar(plot, row) }
        bars = [] if bars.all? { |bar| bar["value"].nil? && bar["note"].empty? }
        { "label" => label, "bars" => bars, "marked" => series.empty? && label.match?(OURS) }
      end

      def self.bar(plot, row)
        values = Markdown.good(row).filter_map { |round| round[plot["metric"]] }
        return { "value" => nil, "note" => nothing(row) } if values.empty?

        { "value" => Figures.median(values), "low" => values.min, "high" => values.max }
      end

      def self.nothing(row)
        return "not installed" if row["missing"]

        row["rounds"].any? { |round| round["failure"] } ? "failed" : ""
      end

      private

      # Returns the error, or nil.
      def one(path, plot)
        svg, errors, status = Open3.capture3(*@program, stdin_data: JSON.generate(plot))
        return "`#{@program.join(' ')}` failed #{errors.lines.first(3).map(&:strip).join(' ')}" unless status.success? && svg.include?("<svg")

        File.write(path, svg)
        nil
      rescue SystemCallError => e
        "#{@program.first}: #{e.message}"
      end
    end
  end
end
