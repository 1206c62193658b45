# frozen_string_literal: true

require "fileutils"
require "json"
require_relative "failure"
require_relative "json_lines"
require_relative "ratio"
require_relative "report"
require_relative "shootout/chapter"

module Bench
  # The figures that `bench/run --record` keeps and `--check` compares with: record.json, and from it the table in RESULTS.md.
  #
  # Each scenario has its own date, machine and versions, because some may be measured again without the others.
  class Record
    FILE = "record.json"
    TABLE = "RESULTS.md"
    # Its part of RESULTS.md.
    CHAPTER = Shootout::Chapter.new(name: "comparison", title: "Beside other servers", command: "bench/run --record", scenarios: [])

    # folder: where both files are. Raises Failure when the record is missing or damaged; with `blank` a missing one is empty.
    def initialize(folder, blank: false)
      @folder = folder
      @path = File.join(folder, FILE)
      @entries = blank && !File.exist?(@path) ? {} : read
    end

    def names = @entries.keys

    def machine(name) = field(name, "machine", String)

    # { peer => Ratio }
    def ratios(name)
      field(name, "ratios", Hash).to_h do |peer, values|
        key = "#{name}.ratios.#{peer}"
        damaged(key, "an object", values) unless values.is_a?(Hash)
        [peer, Ratio.new(**%w[median low high rounds].to_h { |part| [part.to_sym, number("#{key}.#{part}", values[part])] })]
      end
    end

    # Replaces a scenario's figures by those of a Report; conditions: date, machine, load, versions, rounds and seconds.
    def add(report, conditions)
      foreign, steal = report.others
      entry = { **conditions, others: { foreign_cores: foreign&.round(3), steal_cores: steal&.round(3) }, metric: report.scenario.metric,
                              ratios: report.ratios.transform_values(&:to_h), rows: report.rows, notes: report.notes }
      # With texts as keys, as it is read.
      @entries[report.scenario.name] = JSON.parse(JSON.generate(entry))
    end

    # Writes both files; order: names of the scenarios.
    def write(order)
      FileUtils.mkdir_p(@folder)
      sorted = @entries.sort_by { |name, _entry| order.index(name) || order.size }
      replace(@path, "#{JsonLines.generate({ 'scenarios' => sorted.to_h }, 2)}\n")
      table = File.join(@folder, TABLE)
      replace(table, CHAPTER.replace(File.exist?(table) ? File.read(table) : "# Figures\n", section(sorted)))
    end

    private

    # An interrupted run leaves the old file or the new one.
    def replace(path, text)
      File.write("#{path}.new", text)
      File.rename("#{path}.new", path)
    end

    def read
      document = JSON.parse(File.read(@path))
      scenarios = document["scenarios"] if document.is_a?(Hash)
      raise Failure, "#{@path}: scenarios: expected an object, found #{scenarios.inspect}; restore the file, or measure anew with bench/run --record" unless scenarios.is_a?(Hash)

      scenarios
    rescue Errno::ENOENT
      raise Failure, "#{@path} does not exist: bench/run --record measures and writes it"
    rescue JSON::ParserError => e
      raise Failure, "#{@path} is no JSON: #{e.message.lines.first.chomp}; restore the file, or remove it and measure with bench/run --record"
    end

    def field(name, key, kind)
      entry = @entries.fetch(name) do
        raise Failure, "#{@path} has no scenario #{name}, only #{names.join(', ')}; bench/run --record #{name} adds it"
      end
      damaged(name, "an object", entry) unless entry.is_a?(Hash)
      return entry[key] if entry[key].is_a?(kind)

      damaged("#{name}.#{key}", { Hash => "an object", String => "a text" }.fetch(kind), entry[key])
    end

    def number(key, value)
      value.is_a?(Numeric) && value >= 0 ? value : damaged(key, "a number of at least 0", value)
    end

    def damaged(key, expected, found)
      raise Failure, "#{@path}: scenarios.#{key}: expected #{expected}, found #{found.inspect}; " \
                     "restore the file, or measure anew with bench/run --record #{key[/\A[^.]+/]}"
    end

    def section(entries)
      conditions = entries.group_by { |_name, entry| entry.values_at("date", "machine", "load", "versions", "rounds", "seconds", "pinned") }
      heads = conditions.map { |values, group| head(values, group.map(&:first)) }
      rows = entries.flat_map { |_name, entry| entry["rows"].map { |cells| Report.line(cells) } }
      notes = entries.flat_map { |_name, entry| entry["notes"] }.map { |note| "- #{note.lines.first.chomp}" }
      ["## #{CHAPTER.title}", *heads, [Report.head, *rows].join("\n"), (notes.join("\n") if notes.any?)].compact.map { |part| "#{part}\n" }.join("\n")
    end

    def head(values, names)
      date, machine, load, versions, rounds, seconds, pinned = values
      others = names.filter_map { |name| @entries[name].dig("others", "foreign_cores") }.max
      "Measured on #{date} by [`bench/run --record`](README.md) (#{names.join(', ')}): #{machine}; at the start #{load}; " \
        "others used #{others || 0} cores at most in the median round of a scenario. " \
        "#{versions.map { |name, version| "#{name} #{version}" }.join(', ')}. #{rounds} interleaved rounds of #{seconds} s, disturbed ones left out, " \
        "#{pinned ? 'servers on one processor, loads on another' : 'nothing pinned'} (hello-two: on both)."
    end
  end
end
