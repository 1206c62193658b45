# frozen_string_literal: true

require "fileutils"
require_relative "figures"
require_relative "goals"
require_relative "store"

module Bench
  module Shootout
    # A chapter of RESULTS.md, written from the stored results.
    module Markdown
      BUSY = 0.1
      # Readable names for placeholders in commands and files.
      LEGEND = "`{port}` a free port of 127.0.0.1, `{socket}` a Unix socket, `{workers}` processes (`{cluster}` 0 instead of 1), `{threads}` in each, " \
               "`{preload}` `--preload` with more than one process, `{dir}` the app's folder, `{home}` a folder of the server's own, `{redis}` Redis's port. Processes of Ruby " \
               "have `RACK_ENV=production`."

      module_function

      def write(output, documents, chapter)
        path = File.join(output, "RESULTS.md")
        FileUtils.mkdir_p(output)
        old = File.exist?(path) ? File.read(path) : "# Figures\n"
        File.write("#{path}.new", chapter.replace(old, section(output, documents, chapter)))
        File.rename("#{path}.new", path)
      end

      def section(output, documents, chapter)
        parts = ["## #{chapter.title}", introduction(documents, chapter), *documents.map { |one| scenario(output, one, chapter) }]
        "#{parts.join("\n\n")}\n"
      end

      def introduction(documents, chapter)
        machines = documents.map { |one| one["machine"] }.uniq
        versions = documents.map { |one| one["versions"] }.reduce({}, :merge)
        <<~TEXT.chomp
          #{chapter.about}
          Servers take turns (A B C, A B C, …), each freshly started; a figure is the median of the rounds, a ratio the median of the rounds' own ratios. CPU is that of the whole
          process tree, memory too (PSS: shared pages count in part). Rows that compete stand in the order of the first column that says who is better. Every sample is in [plots/](plots/).

          Machine: #{machines.join('; ')}.

          #{versions.map { |name, version| "- #{name}: #{version}" }.join("\n")}
        TEXT
      end

      def scenario(output, document, chapter)
        parts = [("### #{document['title']}" unless chapter.single), state(document, chapter)].compact
        return [*parts, "**Not measured**: #{document['skipped']}."].join("\n\n") if document["skipped"]

        parts.concat(document["tables"].flat_map { |table| table(output, table, document) })
        parts << Goals.lines(document) << notes(document) << configurations(document)
        parts.compact.reject(&:empty?).join("\n\n")
      end

      def state(document, chapter)
        size = document["size"]
        text = +"#{document['started'][0, 10]}, `#{chapter.typed(document['scenario'])}`, #{size['rounds'] == 1 ? 'one round' : "#{size['rounds']} rounds"}."
        text << " **Interrupted**: some rounds are missing." unless document["complete"] || document["skipped"]
        text << " **Rough**: other programs used up to #{(document['busy'] * 100).round} % of the processors." if document["busy"] > BUSY
        text
      end

      def table(output, table, document)
        [("#### #{table['title']}" unless table["title"].empty?), table["text"], grid(table), (best(table) if table["comparable"]), images(output, table, document)].compact.reject(&:empty?)
      end

      def grid(table)
        titles = table["heads"] + table["columns"].map { |column| column["title"] }
        head = ["| #{titles.join(' | ')} |", "|#{'---|' * table['heads'].size}#{'---:|' * table['columns'].size}"]
        [*head, *sorted(table).map { |row| "| #{[*row['cells'], *figures(row, table)].join(' | ')} |" }].join("\n")
      end

      # Best first, by the first column with a good direction or by the given one; rows without a figure last.
      def sorted(table, column = table["columns"].find { |one| one["better"] })
        return table["rows"] unless table["comparable"] && column

        table["rows"].sort_by.with_index do |row, index|
          value = value(row, column, table)
          if value
            [0, column["better"] == "more" ? -value : value, index]
          else
            [1, 0, index]
          end
        end
      end

      def figures(row, table)
        rest = Array.new(table["columns"].size - 1, "")
        return ["not measured", *rest] if row["missing"]
        return ["–", *rest] if row["rounds"].empty?
        return ["failed", *rest] if good(row).empty?

        table["columns"].map { |column| cell(row, column, table) }
      end

      def cell(row, column, table)
        return errors(row) if column["metric"] == "errors"

        Figures.number(value(row, column, table))
      end

      # Errors add up; a failed round counts as one.
      def errors(row)
        Figures.number(row["rounds"].sum { |round| round["failure"] ? 1 : round["errors"].to_i })
      end

      def good(row) = row["rounds"].reject { |round| round["failure"] }

      def value(row, column, table)
        metric = column["metric"]
        return Figures.median(good(row).map { |round| round[metric] }) unless column["to"]

        other = table["rows"].find { |one| one["name"] == column["to"] } or return
        pairs = row["rounds"].zip(other["rounds"]).map { |pair| pair.map { |round| round && round[metric] } }
        Figures.median(pairs.filter_map { |own, base| own.fdiv(base) if own && base&.positive? })
      end

      # The leader, whichever it is.
      def best(table)
        leaders = table["columns"].select { |column| column["better"] }.filter_map do |column|
          direction = column["better"] == "more" ? :max_by : :min_by
          row = table["rows"].select { |one| !one["apart"] && value(one, column, table) }.public_send(direction) { |one| value(one, column, table) } or next
          "#{column['better'] == 'more' ? 'most' : 'least'} #{column['title']}: **#{row['cells'].first}** (#{Figures.number(value(row, column, table))})"
        end
        leaders.empty? ? "" : "#{leaders.join('; ').then { |text| text[0].upcase + text[1..] }}."
      end

      def images(output, table, _document)
        table["plots"].filter_map do |plot|
          "![#{plot['title']}](#{Store::FOLDER}/#{plot['name']}.svg)" if File.exist?(File.join(output, Store::FOLDER, "#{plot['name']}.svg"))
        end.join("\n\n")
      end

      def notes(document)
        document["tables"].flat_map { |table| table["rows"] }.flat_map do |row|
          failures = row["rounds"].filter_map { |round| round["failure"] }.uniq.map { |text| "failed: #{one_line(text)}" }
          killed = row["rounds"].sum { |round| round["killed"].to_i }
          failures << "#{killed} processes had to be killed after TERM" if killed.positive?
          repeated = row["rounds"].sum { |round| round["repeated"].to_i }
          failures << "the load generator hung, and was started again, #{repeated == 1 ? 'once' : "#{repeated} times"}" if repeated.positive?
          [row["missing"], *failures].compact.map { |text| "- #{row['name']}: #{text}" }
        end.join("\n")
      end

      def one_line(text) = text.split("\n").map(&:strip).join(" ").slice(0, 300)

      def configurations(document)
        shown = {}
        texts = document["tables"].flat_map { |table| table["rows"] }.reject { |row| row["configuration"].empty? }.map { |row| configuration(row, shown) }
        return "" if texts.empty?

        "<details>\n<summary>Commands and configurations</summary>\n\n#{LEGEND}\n\n#{texts.join("\n\n")}\n\n</details>"
      end

      # shown: { text => where it is printed }: nothing is printed twice.
      def configuration(row, shown)
        why, *texts = row["configuration"].to_a
        name = row["cells"].first
        blocks = texts.map do |title, text|
          next "#{title}: as for #{shown[[title, text]]}." if shown.key?([title, text])

          shown[[title, text]] = name
          "#{title}:\n\n#{text.strip.gsub(/^/, '    ')}"
        end
        ["**#{name}**: #{why.last}.", *blocks].join("\n\n")
      end
    end
  end
end
