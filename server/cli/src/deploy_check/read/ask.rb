# frozen_string_literal: true

# Prints, as JSON, the version of this Ruby and the pools of config/database.yml and DATABASE_URL. The app is not loaded, and no value
# but the adapter and the size of a pool is printed.
#
# Arguments: the environment, and whether the app uses Active Record ("1" or "0").

require "erb"
require "json"
require "pathname"
require "uri"
require "yaml"

# Stands for what only the app knows. Its text is in place of a number, so that no number is guessed.
class OnlyTheAppKnows < BasicObject
  TEXT = "(only the app knows)"

  def method_missing(*) = self
  def respond_to_missing?(*) = true
  def to_s = TEXT
  def to_str = TEXT
  def inspect = TEXT
  def nil? = false
  def ! = false
end

# The parts of Rails that database.yml usually asks.
module Rails
  # "production", with production?
  class Name < String
    def method_missing(name, *) = name.end_with?("?") ? self == name.to_s.chomp("?") : super
    def respond_to_missing?(name, *) = name.end_with?("?") || super
  end

  def self.env = Name.new(ARGV[0])
  def self.root = Pathname.pwd
  def self.method_missing(*) = OnlyTheAppKnows.new
  def self.respond_to_missing?(*) = true
end

# Active Record's default.
DEFAULT = 5

def url_options(url)
  uri = URI.parse(url)
  { "adapter" => uri.scheme.to_s, **URI.decode_www_form(uri.query.to_s).to_h }
rescue URI::InvalidURIError, ArgumentError
  # A password may need escaping; the message would quote it.
  raise "a database URL is not valid: escape the characters of its password"
end

def pool(name, config, url, origin)
  from_url = url ? url_options(url) : {}
  size_key = %w[max_connections pool].find { |key| from_url.key?(key) || config.key?(key) }
  size = from_url.fetch(size_key, config[size_key]) if size_key
  size_origin = size_key ? (from_url.key?(size_key) ? origin : "config/database.yml") : "default"
  size = DEFAULT if size.nil?
  size = Integer(size.to_s, 10, exception: false)
  { name: name, adapter: (from_url["adapter"] || config["adapter"]).to_s, origin: size_origin, size: size&.between?(1, 1_000_000) ? size : nil }
end

def configs(environment)
  text = ERB.new(File.read("config/database.yml")).tap { |erb| erb.filename = "config/database.yml" }.result
  all = (YAML.respond_to?(:unsafe_load) ? YAML.unsafe_load(text) : YAML.load(text)) || {}
  own = all[environment] || {}
  own.is_a?(Hash) && own.any? && own.values.all?(Hash) ? own : { "primary" => own.is_a?(Hash) ? own : { "url" => own.to_s } }
end

def set(name) = ENV[name].to_s.empty? ? nil : ENV[name]

def pools(environment, active_record)
  url = set("DATABASE_URL")
  if File.file?("config/database.yml")
    configs(environment).filter_map do |name, config|
      next if config.empty? && !(name == "primary" && url)

      own = set("#{name.upcase}_DATABASE_URL") || (name == "primary" ? url : nil)
      pool(name, config, own || config["url"], own ? "DATABASE_URL" : "config/database.yml")
    end
  elsif url
    found = pool("DATABASE_URL", {}, url, "DATABASE_URL")
    # The default of another library is not known.
    [active_record || found[:origin] != "default" ? found : found.merge(size: nil)]
  else
    []
  end
end

answer = { engine: RUBY_ENGINE, version: RUBY_VERSION, has_yjit: !!defined?(RubyVM::YJIT), yjit: !!(defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?) }
begin
  # The output of the file does not belong to the answer.
  out = $stdout.dup
  $stdout.reopen($stderr)
  answer[:pools] = pools(ARGV[0], ARGV[1] == "1")
rescue NameError
  # A constant of the app.
  answer[:pools] = [{ name: "config/database.yml", adapter: "unknown", origin: "the app", size: nil }]
rescue SystemExit, ScriptError, StandardError => e
  answer[:error] = "#{e.class}: #{e.message.lines.first.to_s.strip}"
end
out.puts("\0#{JSON.generate(answer)}")
