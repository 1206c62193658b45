# frozen_string_literal: true

# Checks what README.md, ARCHITECTURE.md, CHANGELOG.md, CONTRIBUTING.md and docs/ show: settings are accepted, keys exist, commands and flags are
# understood, links lead to pages and sections that exist.

require "open3"
require "shellwords"
require "support/case"

class DocumentationTest < Case
  parallel!

  PAGES = Dir[File.join(Server::ROOT, "{README,ARCHITECTURE,CHANGELOG,CONTRIBUTING}.md"), File.join(Server::ROOT, "docs/**/*.md")].sort.freeze
  # Variables of the Rack env that look like settings.
  VARIABLES = %w[
    rack.url_scheme rack.hijack rack.after_reply rack.multithread rack.multiprocess rack.run_once rack.errors rack.input
    rack.protocol
  ].freeze
  # A placeholder in a value: `cert=…`.
  LEFT_OUT = /…|\.\.\./

  class << self
    # Sections and keys, as `limits.max_body`.
    def keys
      @keys ||= File.read(File.join(Server::ROOT, "docs/settings.md")).scan(/^#+ `([a-z_]+(?:\.[a-z_]+)*)`/).flatten
    end

    # The figures of /stats, some of which are in sections of the same name.
    def figures
      @figures ||= File.read(File.join(Server::ROOT, "docs/stats.md")).scan(/^\| `([a-z_]+(?:\.[a-z_]+)+)` \|/).flatten
    end

    def sections
      @sections ||= keys.grep(/\./).map { |key| key.split(".").first }.uniq
    end
  end

  def setup
    firebrick_only
  end

  # The text of a page without its code blocks, which have rules of their own, and those blocks.
  def parts(page)
    blocks = []
    text = File.read(page).gsub(/(?:^ {4}.*\n|^\n(?= {4}))+/) do |block|
      blocks << block.gsub(/^ {4}/, "").strip
      "\n"
    end
    [text, blocks]
  end

  def inline(page)
    parts(page).first.scan(/`([^`]+)`/).flatten.map { |code| code.gsub("\\|", "|") }
  end

  def toml?(block)
    lines = block.lines(chomp: true).reject { |line| line.empty? || line.start_with?("#") }
    lines.any? && lines.all? { |line| line.match?(/\A(\[\[?[a-z_]+(\.[\w-]+)*\]\]?|[\w.-]+ = .+)\s*(#.*)?\z/) }
  end

  # A block that gives a key several values shows what could be written.
  def alternatives(block)
    lines = block.lines(chomp: true)
    return [block] if lines.any? { |line| line.start_with?("[") }

    lines.map { |line| line[/\A[\w.-]+(?= = )/] }.compact.tally.values.max.to_i > 1 ? lines : [block]
  end

  # Runs the program in a folder with a page; its exit code and what it wrote.
  def firebrick(*words, files: {})
    Dir.mktmpdir("firebrick-documentation") do |dir|
      { "index.html" => "hello" }.merge(files).each { |name, text| File.write(File.join(dir, name), text) }
      out, status = Open3.capture2e({ "FIREBRICK_CONTROL" => nil, "CABLE_SECRET" => "0123456789abcdef" * 2 }, Server.binary, *words, chdir: dir)
      [status.exitstatus, out]
    end
  end

  # Its subcommand exists, and has these flags.
  def assert_understood(command)
    words = Shellwords.split(command.sub("[DIR]", "")).drop(1)
    subcommand = words.first if words.first&.match?(/\A[a-z]+(?:-[a-z]+)*\z/)
    status, help = firebrick(*subcommand, "--help-all")
    assert_equal 0, status, "#{command}\n#{help}"
    flags = words.map { |word| word[/\A(?:--[a-z][a-z0-9-]*|-[a-z][a-z-]*)/] }.compact
    flags.each { |flag| assert help.match?(/(?<![\w-])#{flag}(?![\w-])/), "#{command}: there is no #{flag}" }
  end

  it "names only variables that the code reads" do
    sources = Dir[File.join(Server::ROOT, "{server,worker,handlers,measure,bench,script,deploy,test}/**/*")].select { |path| File.file?(path) && !path.end_with?(".md", ".so") }
    sources -= [__FILE__]
    named = PAGES.flat_map { |page| File.read(page).scan(/\bFIREBRICK_[A-Z_]+\b/) }.uniq
    assert_operator named.size, :>, 5
    sources.each { |path| named -= File.binread(path).scan(/\bFIREBRICK_[A-Z_]+\b/) unless named.empty? }
    assert_empty named
  end

  it "docs/README.md leads to every page" do
    folder = File.join(Server::ROOT, "docs")
    links = File.read(File.join(folder, "README.md")).scan(/\]\(([a-z0-9-]+\.md)\)/).flatten
    assert_equal Dir["*.md", base: folder].sort - ["README.md"], links.uniq.sort
  end

  it "SECURITY.md names tests that exist, for each threat" do
    rows = File.read(File.join(Server::ROOT, "SECURITY.md"))[/^\| threat \|.*?(?=\n\n)/m].lines.drop(2).map { |row| row.strip.delete_suffix("|").split("|").last }
    assert_operator rows.size, :>, 30
    rows.each { |tests| assert_match(/`\w+`/, tests) }
    rows.flat_map { |tests| tests.scan(/`(\w+)`/).flatten }.uniq.each do |name|
      files = ["test/#{name}_test.rb", "fuzz/fuzz_targets/#{name}.rs"].map { |file| File.join(Server::ROOT, file) }
      assert(files.any? { |file| File.exist?(file) }, "SECURITY.md: there is neither a suite nor a fuzz target #{name}")
    end
  end

  it "docs/comparison.md has figures of bench/RESULTS.md only, and dates" do
    results = File.read(File.join(Server::ROOT, "bench/RESULTS.md"))
    text = File.read(File.join(Server::ROOT, "docs/comparison.md"))
    rows = text.scan(/^\|.*\|$/).flat_map { |row| row.split("|").drop(2).map(&:strip) }
    figures = rows.grep(%r{\A[\d.,]+( / [\d.,]+)?( m?s)?\z}) + text.scan(/\d+\.\d+ and \d+\.\d+ microseconds/).flat_map { |words| words.scan(/[\d.]+/) }
    assert_operator figures.size, :>, 60
    assert_empty(figures.reject { |figure| results.match?(/(?<![\d.,])#{Regexp.escape(figure)}(?![\d.,]*\d)/) })
    assert_empty(text.scan(/\b\d{4}-\d\d-\d\d\b/).uniq.reject { |date| results.include?(date) })
    text.split(/^## /).grep(/^\|.*\|\n\|.*---:/).each { |part| assert_match(/\b\d{4}-\d\d-\d\d\b/, part) }
  end

  PAGES.each do |page|
    name = page.delete_prefix("#{Server::ROOT}/")

    it "#{name}: settings are accepted" do
      settings = inline(page).grep(/\A[a-z_]+(\.[a-z_]+)* = /).grep_v(/\Aconfig\./)
      parts(page).last.select { |block| toml?(block) }.each { |block| settings.concat(alternatives(block)) }
      settings.grep_v(LEFT_OUT).uniq.each do |toml|
        status, out = firebrick("check", files: { "firebrick.toml" => "#{toml}\n" })
        assert_equal 0, status, "#{toml}\n#{out}"
      end
    end

    it "#{name}: keys exist" do
      refute_empty self.class.keys
      keys = inline(page).grep(/\A(#{Regexp.union(self.class.sections)})\.[a-z_]+\z/).uniq
      assert_empty keys - self.class.keys - self.class.sections - self.class.figures - VARIABLES
    end

    it "#{name}: links lead to pages and sections that exist" do
      File.read(page).scan(/\]\(([^)\s]+)\)/).flatten.grep_v(/\A[a-z]+:/).each do |link|
        path, section = link.split("#", 2)
        target = path.empty? ? page : File.expand_path(path, File.dirname(page))
        assert_path_exists target, link
        next unless section

        headings = File.read(target).scan(/^#+ (.+)$/).flatten.map { |title| title.downcase.gsub(/[^\w\- ]/, "").tr(" ", "-") }
        assert_includes headings, section, link
      end
    end

    it "#{name}: commands and flags are understood" do
      commands = [*inline(page), *parts(page).last.flat_map(&:lines)].filter_map { |line| line.strip[/\Afirebrick(?: .*)?\z/] }.grep_v(/--guard-|front --attach/)
      commands.grep_v(LEFT_OUT).map { |command| command.sub(/\s+#.*|[|>].*/, "").strip }.uniq.each { |command| assert_understood(command) }
    end
  end
end
