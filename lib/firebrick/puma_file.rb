# frozen_string_literal: true

require "firebrick/puma_file/words"

module Firebrick
  # Puma's configuration file, `config/puma.rb` (docs/puma-rb.md). It is evaluated once, in the process that then loads
  # the app: what it sets is reported to the front, which decides what it means, and its blocks stay here.
  class PumaFile
    # A method that Puma does not have.
    class UnknownMethod < StandardError
      attr_reader :method_name

      def initialize(method_name)
        @method_name = method_name
        super("Puma has no such setting")
      end
    end

    # One call of the DSL.
    Call = Struct.new(:file, :line, :name, :arguments, :block)

    class << self
      # The file of this process; nil without one.
      attr_reader :current

      # Evaluates it: what `configured` or `unconfigured` tell the front (docs/processes.md). With a block it is called
      # first; what it raises is told in the same way.
      def evaluate(path, workers)
        @current = new(path, workers)
        yield if block_given?
        @current.evaluate
        words(@current)
      rescue Exception => e # rubocop:disable Lint/RescueException
        words = ["unconfigured", *@current.refusal(e)]
        @current = nil
        words
      end

      def words(file)
        ["configured", *file.calls.flat_map { |call| Words.of_call(call) }]
      end
    end

    # What was called, and what `get` returns. `blocks`: what runs later, by the name that Puma 8 has for it.
    attr_reader :path, :calls, :options, :blocks, :background

    # workers:: how many a flag or variable asks for, as text
    def initialize(path, workers)
      @path = path
      @workers = workers
      @files = []
      @calls = []
      @options = {}
      @blocks = Hash.new { |blocks, name| blocks[name] = [] }
    end

    def evaluate
      require "firebrick"
      require "firebrick/puma_file/dsl"
      require "firebrick/puma_file/background"
      require "firebrick/compat/puma"
      Compat.offer
      @background = Background.new(self)
      dsl = DSL.new(self)
      dsl.read(@path)
      dsl.offer_plugins
      blocks[cluster? ? :cluster : :single].each(&:call)
    end

    # Evaluates a file in `dsl`.
    def read(path, dsl)
      @files << path.to_s
      dsl.instance_eval(File.read(path), path.to_s, 1)
    end

    def record(name, arguments, block)
      place = caller_locations.find { |location| @files.include?(location.path) } ||
              caller_locations.find { |location| !location.path.start_with?(__dir__) }
      @calls << Call.new(place&.path.to_s, place&.lineno.to_i, name, arguments, block)
    end

    # The words of `unconfigured`: place, unknown method, text.
    def refusal(error)
      file, line = place_of(error)
      [file, line, error.is_a?(UnknownMethod) ? error.method_name : "", text_of(error)]
    end

    # Before the app is loaded: what it and the workers print goes where the file says.
    def redirect_output
      { $stdout => :redirect_stdout, $stderr => :redirect_stderr }.each do |io, option|
        path = @options[option] or next
        io.reopen(path.to_s, "a")
        io.sync = true
      end
    end

    # The app of the file itself, if it has one.
    def app
      @options[:app]
    end

    # The app, with what the file says about requests.
    def wrap(app)
      require "firebrick/puma_file/requests"
      Requests.wrap(app, @options)
    end

    # Keeps the blocks as hooks, and declares what runs beside the workers.
    def install
      install_hooks
      @background.declare
    end

    def install_hooks
      require "firebrick/puma_file/hooks"
      Hooks.new(self).install
    end

    private

    def cluster?
      wanted = @workers.empty? ? @options[:workers] : @workers
      !%w[0 1].include?(wanted.to_s)
    end

    def place_of(error)
      if error.is_a?(SyntaxError) && (match = /\A(.+?):(\d+): /.match(error.message))
        return [match[1], Integer(match[2])]
      end

      place = error.backtrace_locations.to_a.find { |location| @files.include?(location.path) }
      place ? [place.path, place.lineno] : ["", 0]
    end

    def text_of(error)
      return "exit was called (#{error.status})" if error.is_a?(SystemExit)

      text = "#{error.class}: #{error.message.to_s.strip}"
      elsewhere = error.backtrace.to_a.first unless error.is_a?(SyntaxError)
      elsewhere && !own?(elsewhere) ? "#{text}\n    #{elsewhere}" : text
    end

    # Whether a line of a backtrace says no more than the place that is named anyway.
    def own?(line)
      line.start_with?(__dir__, *@files.map { |file| "#{file}:" })
    end
  end
end
