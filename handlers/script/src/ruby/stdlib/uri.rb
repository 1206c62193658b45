# URI, CGI, and the parts of Rack::Utils that handlers use.
module URI
  class Error < StandardError; end
  class InvalidURIError < Error; end

  PATTERN = %r{\A(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://(?:([^/?#@]*)@)?(\[[^\]/?#]*\]|[^/?#:]*)(?::(\d*))?)?([^?#]*)(?:\?([^#]*))?(?:#(.*))?\z}m
  PORTS = { 'http' => 80, 'https' => 443, 'ws' => 80, 'wss' => 443, 'ftp' => 21, 'redis' => 6379, 'rediss' => 6379 }.freeze

  class Generic
    attr_accessor :scheme, :userinfo, :host, :port, :path, :query, :fragment

    def initialize(scheme, userinfo, host, port, path, query, fragment)
      @scheme = scheme && scheme.downcase
      @userinfo = userinfo
      @host = host
      @port = port && !port.empty? ? port.to_i : PORTS[@scheme]
      @path = path
      @query = query
      @fragment = fragment
    end

    def user
      @userinfo && @userinfo.split(':', 2)[0]
    end

    def password
      @userinfo && @userinfo.split(':', 2)[1]
    end

    # An IPv6 address without its brackets.
    def hostname
      @host && @host.start_with?('[') ? @host[1...-1] : @host
    end

    def default_port
      PORTS[@scheme]
    end

    # The request target.
    def request_uri
      path = @path.empty? ? '/' : @path
      @query ? "#{path}?#{@query}" : path
    end

    def absolute?
      @scheme ? true : false
    end

    def relative?
      !absolute?
    end

    def to_s
      text = ''
      text << @scheme << ':' if @scheme
      if @host
        text << '//'
        text << @userinfo << '@' if @userinfo
        text << @host
        text << ':' << @port.to_s if @port && @port != default_port
      end
      text << @path
      text << '?' << @query if @query
      text << '#' << @fragment if @fragment
      text
    end

    def inspect
      "#<#{self.class} #{self}>"
    end

    def ==(other)
      other.is_a?(Generic) && other.to_s == to_s
    end
    alias eql? ==

    def hash
      to_s.hash
    end
  end

  class HTTP < Generic; end
  class HTTPS < HTTP; end

  class << self
    def parse(text)
      text = text.to_s
      parts = text.match?(/[\s<>"\\^`{|}]/) ? nil : PATTERN.match(text)
      raise InvalidURIError, "bad URI(is not URI?): #{text.inspect}" unless parts
      type = { 'http' => HTTP, 'https' => HTTPS }[parts[1].to_s.downcase] || Generic
      type.new(*parts.captures)
    end

    # By RFC 3986 section 5.2.
    def join(base, *others)
      others.inject(parse(base)) { |from, other| resolve(from, parse(other)) }
    end

    def encode_www_form_component(text)
      Rt.call(Rt::PERCENT, text.to_s, 0)
    end

    def decode_www_form_component(text)
      raise ArgumentError, "invalid %-encoding (#{text})" if text.match?(/%(?!\h\h)/)
      Rt.call(Rt::UNPERCENT, text, true)
    end

    def encode_uri_component(text)
      Rt.call(Rt::PERCENT, text.to_s, 1)
    end

    def decode_uri_component(text)
      raise ArgumentError, "invalid %-encoding (#{text})" if text.match?(/%(?!\h\h)/)
      Rt.call(Rt::UNPERCENT, text, false)
    end

    def encode_www_form(pairs)
      parts = []
      pairs.each do |key, value|
        key = encode_www_form_component(key)
        case value
        when nil then parts << key
        when Array then value.each { |one| parts << (one.nil? ? key : "#{key}=#{encode_www_form_component(one)}") }
        else parts << "#{key}=#{encode_www_form_component(value)}"
        end
      end
      parts.join('&')
    end

    def decode_www_form(text)
      text.split('&').map do |pair|
        key, value = pair.split('=', 2)
        [decode_www_form_component(key.to_s), decode_www_form_component(value.to_s)]
      end
    end

    private

    def resolve(base, other)
      return other if other.scheme
      made = other.dup
      made.scheme = base.scheme
      made.port ||= PORTS[base.scheme] if other.host
      unless other.host
        made.userinfo = base.userinfo
        made.host = base.host
        made.port = base.port
        if other.path.empty?
          made.path = base.path
          made.query ||= base.query
        else
          made.path = flattened(other.path.start_with?('/') ? other.path : merged(base, other.path))
        end
      end
      type = { 'http' => HTTP, 'https' => HTTPS }[made.scheme] || Generic
      type.new(made.scheme, made.userinfo, made.host, made.port.to_s, made.path, made.query, made.fragment)
    end

    def merged(base, path)
      return "/#{path}" if base.host && base.path.empty?
      base.path[0, (base.path.rindex('/') || -1) + 1] + path
    end

    def flattened(path)
      parts = []
      all = path.split('/', -1)
      all.each do |part|
        case part
        when '.' then next
        when '..' then parts.pop if parts.size > 1
        else parts << part
        end
      end
      parts << '' if ['.', '..'].include?(all[-1])
      parts.join('/')
    end
  end
end

module Kernel
  def URI(text)
    text.is_a?(URI::Generic) ? text : URI.parse(text)
  end
end

module CGI
  HTML = { '&' => '&amp;', '<' => '&lt;', '>' => '&gt;', '"' => '&quot;', "'" => '&#39;' }.freeze
  NAMES = { 'amp' => '&', 'lt' => '<', 'gt' => '>', 'quot' => '"', 'apos' => "'", '#39' => "'", '#x27' => "'" }.freeze

  class << self
    def escape(text)
      Rt.call(Rt::PERCENT, text.to_s, 0)
    end

    def unescape(text)
      Rt.call(Rt::UNPERCENT, text, true)
    end

    def escapeHTML(text)
      text.to_s.gsub(/[&<>"']/, HTML)
    end
    alias escape_html escapeHTML

    def unescapeHTML(text)
      text.gsub(/&(amp|lt|gt|quot|apos|#39|#x27);/) { NAMES[$1] }
    end
    alias unescape_html unescapeHTML
  end
end

class ERB
  module Util
    class << self
      def html_escape(text)
        CGI.escapeHTML(text)
      end
      alias h html_escape

      def url_encode(text)
        Rt.call(Rt::PERCENT, text.to_s, 2)
      end
    end
  end
end

module Rack
  module Utils
    class << self
      def escape(text)
        CGI.escape(text)
      end

      def unescape(text)
        CGI.unescape(text)
      end

      def escape_html(text)
        CGI.escapeHTML(text)
      end

      def escape_path(text)
        Rt.call(Rt::PERCENT, text.to_s, 2).gsub('%2F', '/')
      end

      def unescape_path(text)
        Rt.call(Rt::UNPERCENT, text, false)
      end

      # A name that occurs twice has an Array of values.
      def parse_query(query)
        pairs = {}
        query.to_s.split('&').each do |pair|
          next if pair.empty?
          name, value = pair.split('=', 2)
          name = unescape(name.to_s)
          value = value && unescape(value)
          pairs[name] = pairs.key?(name) ? [pairs[name]].flatten(1) << value : value
        end
        pairs
      end

      def build_query(pairs)
        pairs.map do |name, value|
          next build_query(value.map { |one| [name, one] }) if value.is_a?(Array)
          value.nil? ? escape(name) : "#{escape(name)}=#{escape(value)}"
        end.join('&')
      end

      # The first value of a name counts.
      def parse_cookies_header(header)
        cookies = {}
        header.to_s.split(/;\s*/).each do |pair|
          name, value = pair.split('=', 2)
          next if name.nil? || name.empty?
          name = name.strip
          cookies[name] = unescape(value.to_s) unless cookies.key?(name)
        end
        cookies
      end

      def parse_cookies(env)
        parse_cookies_header(env['HTTP_COOKIE'])
      end

      def secure_compare(one, other)
        OpenSSL.secure_compare(one, other)
      end
    end
  end
end
