# frozen_string_literal: true

require "fileutils"
require "open3"
require "tmpdir"
require "firebrick/binary"
require "firebrick/puma_file/methods"

module Firebrick
  module Generators
    # Makes the text of a firebrick.toml from the app's Puma file, by `firebrick check --write`.
    #
    # The program writes into a folder of links to the app's files, because it must not write into the app: the generator
    # shows the text first. The file is evaluated as in production; if that fails, in the environment of the generator.
    class PumaConversion
      # The program refuses the file; the message names file, line and remedy.
      Refused = Class.new(StandardError)

      # Variables that take precedence over both files, so that their values of this moment must not get into one of them.
      VARIABLES = %w[PORT PIDFILE WEB_CONCURRENCY RAILS_MAX_THREADS RAILS_MIN_THREADS].to_h do |name|
        [name, nil]
      end.freeze
      PRODUCTION = %w[APP_ENV RACK_ENV RAILS_ENV].to_h { |name| [name, "production"] }.freeze
      HOOKS = [*PumaFile::Methods::HOOKS.to_a.flatten, :lowlevel_error_handler].freeze
      RUBY = /^[ \t]*(?:#{Regexp.union(HOOKS.map(&:to_s)).source})\b|^[ \t]*plugin\b[ \t(]*:?["']?(?!tmp_restart\b)\w/.freeze
      LEFT_OUT = /^# (?:What is Ruby|Under a condition)/.freeze

      # Returns whether the app has a file to convert.
      def self.possible?(root)
        Dir[File.join(root, "config/puma.rb"), File.join(root, "config/puma/production.rb")].any?
      end

      def initialize(root)
        @root = File.realpath(root)
      end

      def text
        @text ||= convert(PRODUCTION) || convert({}) || raise(Refused, @error)
      end

      # The file's path, if something in it is not in the text: blocks, plugins, values under conditions.
      def still_needed
        path = text[/\A# Made from (\S+) by/, 1] || "config/puma.rb"
        path if text.match?(LEFT_OUT) || File.read(File.join(@root, path)).match?(RUBY)
      end

      private

      def convert(environment)
        Dir.mktmpdir("firebrick-install") do |folder|
          folder = File.realpath(folder)
          (Dir.children(@root) - ["firebrick.toml"]).each do |name|
            File.symlink(File.join(@root, name), File.join(folder, name))
          end
          variables = { "FIREBRICK_LIB" => Binary::LIB, **VARIABLES, **environment }
          out, status = Open3.capture2e(variables, [Binary.find, "firebrick"], "check", "--write", chdir: folder)
          next adapt(File.read(File.join(folder, "firebrick.toml")), folder) if status.success?

          @error = in_app(out.strip.delete_prefix("error: "), folder)
          nil
        end
      end

      def in_app(text, folder)
        [folder, @root].reduce(text) { |all, path| all.gsub("#{path}/", "").gsub(path, @root) }
      end

      def adapt(text, folder)
        in_app(text, folder).sub(/^environment = .*?# (.*)$/, '# The environment is that of RAILS_ENV, or of -e (\1).')
      end
    end
  end
end
