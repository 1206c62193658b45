# frozen_string_literal: true

require "firebrick/puma_file/refusals"
require "firebrick/puma_file/surroundings"
require "firebrick/puma_file/values"
require "firebrick/puma_file/words"
require "firebrick/wire"

module Firebrick
  # Puma's configuration file, `config/puma.rb` (docs/puma-rb.md). It is evaluated once, in the process that then loads
  # the app. Its settings are reported to the front, which interprets them; its blocks stay here.
  class PumaFile
    # Raised for a method that Puma does not have.
    class UnknownMethod < StandardError
      attr_reader :method_name

      def initialize(method_name)
        @method_name = method_name
        super("Puma has no such setting")
      end
    end

    # The files needed for an evaluation.
    PARTS = %w[background conditions dsl evaluation].freeze

    # One call of the DSL. `conditional`: with other variables the call might not have been made.
    Call = Struct.new(:file, :line, :name, :arguments, :block, :conditional)

    extend Values
    include Refusals
    include Surroundings

    class << self
      # The PumaFile of this process; nil without one.
      attr_reader :current

      # Evaluates the file. Returns the `configured` or `unconfigured` message for the front
      # (docs/internals/processes.md). A block is called first; its exceptions are reported in the same way.
      #
      # workers:: the number of workers given by a flag or variable, as text
      # environment:: the environment given by a flag or variable
      def evaluate(path, workers, environment = "")
        @current = new(path, workers, environment)
        yield if block_given?
        @current.evaluate
        words(@current)
      rescue Exception => e # rubocop:disable Lint/RescueException
        words = [Wire::Report::UNCONFIGURED, *@current.refusal(e)]
        @current = nil
        words
      end

      def words(file)
        [Wire::Report::CONFIGURED, *file.calls.flat_map { |call| Words.of_call(call) }]
      end

      # Evaluates Ruby code in a DSL.
      def evaluate_in(receiver, text, place)
        @receiver = receiver
        @text = text
        @place = place
        evaluate_text
      end
    end

    # The recorded calls, and the options that `get` returns. `blocks`: the blocks to run later, by their names in Puma
    # 8.
    attr_reader :path, :workers, :calls, :options, :blocks, :background

    def initialize(path, workers, environment)
      @path = path
      @workers = workers
      @environment = environment
      # The Conditions of each file.
      @files = {}
      @calls = []
      @options = {}
      @blocks = Hash.new { |blocks, name| blocks[name] = [] }
    end

    def evaluate
      require "firebrick"
      PARTS.each { |name| require "firebrick/puma_file/#{name}" }
      require "firebrick/compat/puma"
      Compat.offer
      @background = Background.new(self)
      dsl = DSL.new(self)
      dsl.__read(@path)
      dsl.__offer_plugins
      blocks[cluster? ? :cluster : :single].each(&:call)
    end

    # Evaluates a file in `dsl`. Ruby's sources are UTF-8, whatever the locale is.
    def read(path, dsl)
      text = File.read(path, encoding: "BOM|UTF-8")
      @files[path.to_s] = Conditions.new(text)
      PumaFile.evaluate_in(dsl, text, path.to_s)
    end

    def record(name, arguments, block)
      locations = caller_locations
      places = locations.select { |location| @files.key?(location.path) }
      place = places.first || locations.find { |location| !location.path.start_with?(__dir__) }
      where = place ? [place.path, place.lineno] : ["", 0]
      @calls << Call.new(*where, name, arguments, block, conditional?(places, name))
    end

    # Redirects output as the file says. Called before the app is loaded, so it applies to the app and the workers.
    def redirect_output
      { $stdout => :redirect_stdout, $stderr => :redirect_stderr }.each do |io, option|
        path = @options[option] or next
        io.reopen(path.to_s, "a")
        io.sync = true
      end
    end

    # Returns the app defined in the file itself, if there is one.
    def app
      @options[:app]
    end

    # Wraps the app to apply the file's settings about requests.
    def wrap(app)
      require "firebrick/puma_file/requests"
      Requests.wrap(app, @options)
    end

    # Installs the blocks as hooks, and declares services for the parts that run beside the workers.
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

    # Returns whether the call is conditional: at its own place, or where another file is loaded.
    def conditional?(places, name)
      places.each_with_index.any? do |place, depth|
        @files.fetch(place.path).conditional?(place.lineno, depth.zero? ? name : nil)
      end
    end
  end
end
