# frozen_string_literal: true

require "open3"
require "tmpdir"
require "firebrick/binary"
require "firebrick/puma_file/methods"

module Firebrick
  module Generators
    # Makes the text of a firebrick.toml from the app's Puma file, by `firebrick check --write`.
    #
    # The program writes into a folder of links to the app's files, because the generator shows the text before it is
    # in the app. The file is evaluated as in production; if that fails, in the generator's own environment.
    class PumaConversion
      # The program refuses the file; the message has the file, the line and the reason.
      Refused = Class.new(StandardError)

      FILES = %w[config/puma/production.rb config/puma.rb].freeze
      # They take precedence over both files, so their values of this moment must not get into one of them.
      VARIABLES = %w[PORT PIDFILE WEB_CONCURRENCY RAILS_MAX_THREADS RAILS_MIN_THREADS].freeze
      ENVIRONMENTS = %w[APP_ENV RACK_ENV RAILS_ENV].freeze
      HOOKS = Regexp.union([*PumaFile::Methods::HOOKS.to_a.flatten, :lowlevel_error_handler].map(&:to_s)).freeze
      PLUGIN = /plugin\b[ \t(]*:?["']?(?!tmp_restart\b)\w/.freeze
      RUBY = /^[ \t]*(?:#{HOOKS}\b|#{PLUGIN})/.freeze
      LEFT_OUT = /^# (?:What is Ruby|Under a condition)/.freeze

      # Returns whether the app has a file to convert.
      def self.possible?(root)
        FILES.any? { |file| File.file?(File.join(root, file)) }
      end

      def initialize(root)
        @root = File.realpath(root)
      end

      def text
        production = ENVIRONMENTS.to_h { |name| [name, "production"] }
        @text ||= convert(production) || convert({}) || raise(Refused, @refusal)
      end

      # The file's path, if something in it is not in the text: blocks, plugins, values under conditions.
      def still_needed
        path = text[/\A# Made from (\S+) by/, 1] || FILES.last
        path if text.match?(LEFT_OUT) || File.read(File.join(@root, path)).match?(RUBY)
      end

      private

      # Returns nil if the program refuses the file.
      def convert(environment)
        Dir.mktmpdir("firebrick-install") do |folder|
          folder = File.realpath(folder)
          link_app(folder)
          out, status = Open3.capture2e(variables.merge(environment), [Binary.find, "firebrick"], "check", "--write",
                                        chdir: folder)
          return adapt(File.read(File.join(folder, "firebrick.toml")), folder) if status.success?

          @refusal = in_app(out.strip.delete_prefix("error: "), folder)
          nil
        end
      end

      def link_app(folder)
        names = Dir.children(@root) - ["firebrick.toml"]
        names.each { |name| File.symlink(File.join(@root, name), File.join(folder, name)) }
      end

      def variables
        { **Binary.environment, **VARIABLES.to_h { |name| [name, nil] } }
      end

      # Paths become relative to the app's directory, which has another path where it is deployed.
      def in_app(text, folder)
        [folder, @root].reduce(text) { |all, path| all.gsub("#{path}/", "").gsub(path, @root) }
      end

      def adapt(text, folder)
        environment = '# The environment is that of RAILS_ENV, or of -e (\1).'
        in_app(text, folder).sub(/^environment = .*?# (.*)$/, environment)
      end
    end
  end
end
