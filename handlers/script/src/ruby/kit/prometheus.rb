# Converts numbers in the JSON of the next handler to the format of Prometheus: `H2O::Prometheus.new(H2O.next)`.
module H2O
  class Prometheus
    TYPE = 'text/plain; version=0.0.4; charset=utf-8'.freeze

    # prefix::  in front of each name
    def initialize(app, prefix: 'h2o')
      @app = app
      @prefix = prefix
    end

    # Responses other than 200, and bodies that are not a JSON object, are passed on unchanged.
    def call(env)
      response = @app.call(env)
      status, headers, body = response
      return response unless status.to_i == 200
      text = read(body)
      stats = begin
        JSON.parse(text)
      rescue JSON::ParserError
        nil
      end
      return [status, headers, [text]] unless stats.is_a?(Hash)
      lines = []
      write(lines, @prefix, stats, label(stats))
      [200, { 'content-type' => TYPE }, lines]
    end

    private

    def read(body)
      text = ''
      body.each { |part| text << part }
      text
    ensure
      body.close if body.respond_to?(:close)
    end

    def label(stats)
      version = stats['server-version'] || stats['version']
      version.is_a?(String) ? "{version=\"#{version.tr("\\\"\n", '')}\"}" : ''
    end

    # Numbers, also nested ones: their names are joined.
    def write(lines, name, value, label)
      case value
      when Hash then value.each { |key, inner| write(lines, "#{name}_#{plain(key)}", inner, label) }
      when Integer, Float then lines << "# TYPE #{name} gauge\n#{name}#{label} #{value}\n"
      end
    end

    def plain(key)
      key.to_s.bytes.map { |byte| letter?(byte) ? byte.chr : '_' }.join
    end

    def letter?(byte)
      byte.between?(48, 57) || byte.between?(65, 90) || byte.between?(97, 122) || byte == 95
    end
  end
end
