# frozen_string_literal: true

# An app that builds its data at first use, about 40 MB in all: records with their strings, an index over them,
# and a compiled template for each of 500 pages, as frameworks do with routes, translations, schemas and views.

require "erb"

class LazyPage
  RECORDS = 120

  def initialize(number)
    @records = Array.new(RECORDS) { |at| { id: (number * RECORDS) + at, name: "record #{number}.#{at}", text: "#{at} " * 40 } }
    @by_name = @records.to_h { |record| [record[:name], record] }
    rows = Array.new(20) { |at| "<tr><td><%= records[#{at}][:id] %></td><td><%= records[#{at}][:text] %></td></tr>" }
    erb = ERB.new("<table>#{rows.join("\n")}</table><p><%= index[name]&.fetch(:id) %></p>")
    erb.def_method(singleton_class, "render(records, index, name)")
    @number = number
  end

  def to_s
    singleton_class.instance_method(:render).bind_call(self, @records, @by_name, "record #{@number}.7")
  end
end

pages = Array.new(500)
run(lambda do |env|
  number = env["PATH_INFO"].delete("/").to_i % pages.size
  body = (pages[number] ||= LazyPage.new(number)).to_s
  [200, { "content-type" => "text/html" }, [body]]
end)
