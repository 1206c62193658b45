# frozen_string_literal: true

require "cgi"
require "json"

# Makes pages of the documents of the repository, which stay plain Markdown that also reads well where code is shown:
#
# - A page's title is its first heading, its description the first sentence. Documents need no front matter.
# - The navigation is docs/README.md: its sections, and the pages that each links to. A page that it does not name belongs to no section.
# - Links to documents become links to pages; links to other files lead to the repository.
# - The search index has an entry for each section of a page.
module Documents
  ROOT = File.expand_path("../..", __dir__)
  INDEX = "docs/README.md"
  OTHERS = %w[README.md CHANGELOG.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md bench/README.md bench/RESULTS.md].freeze
  LUNR = "/usr/share/javascript/lunr/lunr.min.js"

  # The address of each document, by its path: docs/queue.md is /queue, docs/internals/wire.md /internals/wire.
  def self.addresses
    @addresses ||= Dir.chdir(ROOT) { OTHERS + Dir["docs/**/*.md"] }.to_h { |path| [path, address(path)] }
  end

  def self.address(path)
    return "/docs" if path == INDEX

    "/#{path.delete_prefix('docs/').delete_suffix('.md').downcase}"
  end

  # Returns the address that a link of a document leads to. Raises for a link to nothing.
  def self.target(link, from, site)
    return link if link.match?(/\A([a-z]+:|#)/)

    path, section = link.split("#", 2)
    file = File.expand_path(path, File.join(ROOT, File.dirname(from))).delete_prefix("#{ROOT}/")
    raise Jekyll::Errors::FatalException, "#{from}: #{link} leads to nothing" unless File.exist?(File.join(ROOT, file))

    place = addresses[file] || picture(file) || "#{site.config['repository']}/blob/#{site.config['branch']}/#{file}"
    section ? "#{place}##{section}" : place
  end

  def self.picture(file)
    "/images/#{File.basename(file)}" if file.start_with?("docs/images/")
  end

  # A file of Debian, copied beside the site's own.
  class Library < Jekyll::StaticFile
    def initialize(site, file, dir)
      @file = file
      super(site, File.dirname(file), dir, File.basename(file))
    end

    def path = @file
  end

  class Page < Jekyll::PageWithoutAFile
    attr_reader :document

    def initialize(site, document)
      address = Documents.addresses.fetch(document)
      super(site, site.source, File.dirname(address).delete_prefix("/"), "#{File.basename(address)}.html")
      @document = document
      text = File.read(File.join(ROOT, document))
      @data = { "layout" => "page", "title" => title(text), "address" => address, "render_with_liquid" => false,
                "source" => document, "description" => description(text) }
      @content = Documents.html(text, document, site)
      @data["headings"] = headings
    end

    private

    def title(text) = text[/^# (.+)$/, 1].delete("`")

    def description(text)
      paragraph = text.split(/\n{2,}/).find { |part| part.match?(/\A[A-Za-z`\[]/) }.to_s.tr("\n", " ")
      paragraph.gsub(/\[([^\]]*)\]\([^)]*\)/, '\1').delete("`*")[/\A.{1,300}?[.:](?= |\z)|\A.{1,160}/m].to_s.sub(/:\z/, ".")
    end

    # The table of contents: sections, each with its subsections.
    def headings
      found = []
      @content.scan(%r{<h([23]) id="([^"]+)">(.*?)</h\1>}m) do |level, id, html|
        entry = { "id" => id, "html" => html.sub(/ <a class="anchor".*/m, "").gsub(%r{</?a\b[^>]*>}, ""), "below" => [] }
        level == "3" && found.any? ? found.last["below"] << entry : found << entry
      end
      found
    end
  end

  # Markdown to HTML, as it stands in the page.
  def self.html(text, document, site)
    converter = site.find_converter_instance(Jekyll::Converters::Markdown)
    html = converter.convert(prepared(text)).gsub(BAR, "|")
    html = html.gsub(/(<a href=|<img src=)"([^"]+)"/) { "#{::Regexp.last_match(1)}\"#{CGI.escapeHTML(target(CGI.unescapeHTML(::Regexp.last_match(2)), document, site))}\"" }
    html = html.gsub(/ style="text-align: (\w+)"/, ' class="\1"')
    # A table whose head is empty has none.
    html = html.gsub(%r{<thead>\s*<tr>\s*(<th[^>]*>[[:space:]]*</th>\s*)+</tr>\s*</thead>}, "")
    # The cells that are left empty in a head are corners.
    html = html.gsub(%r{<th[^>]*>[[:space:]]*</th>}, "<td></td>")
    html.gsub("<table>", '<div class="wide"><table>').gsub("</table>", "</table></div>")
        .gsub(%r{<h([2-6]) id="([^"]+)">(.*?)</h\1>}m) { "<h#{::Regexp.last_match(1)} id=\"#{::Regexp.last_match(2)}\">#{::Regexp.last_match(3)} <a class=\"anchor\" href=\"##{::Regexp.last_match(2)}\" aria-label=\"Link to this section\">#</a></h#{::Regexp.last_match(1)}>" }
  end

  # Stands for a bar within code, which kramdown would take for the end of a cell, or for a table.
  BAR = "\u{E000}"

  # Comments are left out: kramdown would take the table below for their paragraph.
  def self.prepared(text)
    text.gsub(/^<!--.*?-->$/m, "").gsub(/^.*`.*$/) do |line|
      bar = line.start_with?("|") ? "\\|" : "|"
      line.gsub(/`[^`]*`/) { |code| code.gsub(bar, BAR) }
    end
  end

  class Generator < Jekyll::Generator
    def generate(site)
      pages = Documents.addresses.keys.map { |document| Page.new(site, document) }
      site.pages.concat(pages)
      site.data["sections"] = sections(site, pages)
      site.pages << search(site, pages)
      files(site)
    end

    private

    # The sections of docs/README.md with their pages, in order. A page's own section is the first that names it.
    def sections(site, pages)
      File.read(File.join(ROOT, INDEX)).split(/^## /).drop(1).map do |part|
        name, text = part.split("\n", 2)
        found = text.scan(/\[([^\]]+)\]\(([^)\s]+)\)/).filter_map do |label, link|
          page = pages.find { |one| one.data["address"] == Documents.target(link, INDEX, site) }
          next unless page

          page.data["section"] ||= name
          { "address" => page.data["address"], "title" => label.delete("`").then { |words| words[0].upcase + words[1..] } }
        end
        { "name" => name, "pages" => found }
      end
    end

    # One entry for each section: address, title of the page, title of the section, text.
    def search(site, pages)
      entries = pages.flat_map { |page| page.document.match?(/RESULTS|CHANGELOG/) ? [] : parts(page) }
      Jekyll::PageWithoutAFile.new(site, site.source, "assets", "search.json").tap do |file|
        file.content = JSON.generate(entries)
        file.data.merge!("layout" => nil, "render_with_liquid" => false)
      end
    end

    def parts(page)
      first, *rest = page.content.split(/(?=<h[23] id=")/)
      [entry(page, first, nil, nil)] + rest.map do |part|
        id, heading = part.match(%r{\A<h[23] id="([^"]+)">(.*?)</h}m).captures
        entry(page, part.sub(%r{\A.*?</h[23]>}m, ""), id, text(heading.sub(/<a class="anchor".*/m, "")))
      end
    end

    def entry(page, html, id, heading)
      html = html.sub(%r{\A.*?</h1>}m, "") unless id
      { "at" => id ? "#{page.data['address']}##{id}" : page.data["address"], "page" => page.data["title"], "title" => heading || page.data["title"],
        "text" => text(html) }
    end

    def text(html) = CGI.unescapeHTML(html.gsub(/<[^>]+>/, " ")).gsub(/\s+/, " ").strip

    def files(site)
      raise Jekyll::Errors::FatalException, "#{LUNR} is missing: install libjs-lunr (script/setup test)" unless File.exist?(LUNR)

      site.static_files << Library.new(site, LUNR, "assets")
      Dir[File.join(ROOT, "docs/images/*")].sort.each { |file| site.static_files << Library.new(site, file, "images") }
    end
  end
end
