# H2O's access control: `acl { deny { addr == '192.0.2.7' } }` as the last value of a handler. The first rule whose condition
# holds responds; if none does, the request goes on to the next handler.
module H2O
  module ACL
    # The methods that conditions can use.
    class Question
      def initialize(env)
        @env = env
      end

      attr_reader :env

      # The client's address. X-Forwarded-For is used if it comes from a private address.
      def addr(forwarded = true)
        Rt.client(@env, forwarded)
      end

      # In the form that files and apps use: `/%61dmin` and `/x/../admin` are `/admin`.
      def path
        Rt.call(Rt::PLAIN_PATH, @env['PATH_INFO'] || '')
      end

      def method
        @env['REQUEST_METHOD'] || ''
      end

      def header(name)
        @env["HTTP_#{name.tr('-', '_').upcase}"] || ''
      end

      def user_agent
        header('User-Agent')
      end
    end

    # A list of rules, which is a handler.
    class Handler
      def initialize(&rules)
        raise ArgumentError, 'acl needs a block' unless rules
        @rules = []
        instance_eval(&rules)
      end

      def call(env)
        # A request sent before the TLS handshake was complete may be a replay; on 425 the client sends it again (RFC 8470).
        return [425, {}, []] if env['HTTP_EARLY_DATA'] == '1'
        question = Question.new(env)
        rule = @rules.find { |_, condition| condition.nil? || question.instance_eval(&condition) }
        rule ? rule[0].call(env) : [399, {}, []]
      end

      # Passes the request to another handler. Ruby gives the block of `use Htpasswd.new(file, realm) { path == '/' }` to `new`,
      # which keeps it as the condition.
      def use(handler, &condition)
        raise TypeError, "use: #{handler.inspect} does not respond to call" unless handler.respond_to?(:call)
        condition ||= handler.condition if handler.respond_to?(:condition)
        @rules << [handler, condition]
        self
      end

      def respond(status, headers = {}, body = [], &condition)
        use(lambda { |_env| [status, headers.dup, body] }, &condition)
      end

      def allow(&condition)
        respond(399, &condition)
      end

      def deny(&condition)
        respond(403, {}, ['Forbidden'], &condition)
      end

      def redirect(location, status = 302, &condition)
        respond(status, { 'Location' => location }, &condition)
      end
    end

    class << self
      attr_accessor :last
    end
  end
end

module Kernel
  def acl(&rules)
    handler = H2O::ACL::Handler.new(&rules)
    return handler unless Rt.loading?
    raise 'acl can be called only once for each handler configuration' if H2O::ACL.last
    H2O::ACL.last = handler
  end
end

module Rt
  class << self
    # The client's address of a request.
    def client(env, forwarded = true)
      peer = env['REMOTE_ADDR'] || ''
      list = forwarded && env['HTTP_X_FORWARDED_FOR']
      list ? call(CLIENT, peer, list) : peer
    end

    alias load_any_app load_app

    # Handlers are loaded one after the other. Rules that are not the last value of their file would have no effect: report them.
    def load_app(code, file)
      outer = [@folder, H2O::ACL.last]
      slash = file.rindex('/')
      @folder = slash ? file[0, slash] : '.'
      H2O::ACL.last = nil
      number = load_any_app(code, file)
      given = H2O::ACL.last
      if given && !given.equal?(apps[number])
        raise "#{file}: the acl is ignored: it must be the last value of the file"
      end
      number
    ensure
      @folder, H2O::ACL.last = outer
    end

    def loading?
      @folder ? true : false
    end

    # A path relative to the handler that is being loaded.
    def beside(path)
      path[0] == '/' || !@folder ? path : "#{@folder}/#{path}"
    end
  end
end
