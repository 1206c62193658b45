# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "../failure"

module Bench
  module Shootout
    # The part of RESULTS.md that one command writes, between two marks; the rest of the file is unchanged.
    #
    # name: for the marks; title: its heading; command: the command that writes it; single: the command measures all of it at once;
    # about: the text above its scenarios; scenarios: classes, in the order of the report.
    Chapter = Struct.new(:name, :title, :command, :single, :about, :scenarios, keyword_init: true) do
      def keys = scenarios.map(&:key)

      def begin_mark = "<!-- #{name}: from here to its end written by #{command} -->"

      def end_mark = "<!-- end of the #{name} -->"

      # The command that measures a scenario again.
      def typed(key) = single ? command : "#{command} #{key}"

      # The text of RESULTS.md with this part replaced, or appended.
      def replace(text, section)
        part = "#{begin_mark}\n#{section}#{end_mark}\n"
        old = /^#{Regexp.escape(begin_mark)}$.*?^#{Regexp.escape(end_mark)}$\n?/m
        text.match?(old) ? text.sub(old) { part } : "#{text.chomp}\n\n#{part}"
      end

      # Runs the block, the command's work, with a temporary directory. Returns the exit status: 0 success (the block is true), 1
      # something failed or a goal was missed, 2 wrong usage or something is missing, 130 interrupted.
      def run
        dir = Dir.mktmpdir("firebrick-bench")
        yield(dir) ? 0 : 1
      rescue Failure => e
        warn "#{command}: #{e.message}"
        2
      rescue Interrupt
        warn "#{command}: interrupted; what was measured is kept"
        130
      ensure
        # A process that is just exiting may still write there.
        FileUtils.rm_rf(dir) if dir
      end
    end
  end
end
