# frozen_string_literal: true

module Firebrick
  # A line of source code with those around it, for messages about errors.
  class SourceExcerpt
    # Lines before and after; bytes of the longest file and characters of the longest line.
    AROUND = 2
    LONGEST = 1 << 20
    WIDTH = 160
    PLACE = /\A(.+?):(\d+)(?::|\z)/.freeze
    private_constant :AROUND, :LONGEST, :WIDTH, :PLACE

    # Returns the excerpt for a line of a backtrace; nil if it names no line of a file that can be read.
    # dir:: the folder that relative paths belong to
    def self.of(frame, dir)
      path, number = frame.match(PLACE)&.captures
      return unless path

      file = File.expand_path(path, dir)
      return unless File.file?(file) && File.size(file) <= LONGEST

      excerpt = new(File.binread(file), Integer(number, 10))
      excerpt unless excerpt.lines.empty?
    rescue SystemCallError, ArgumentError
      nil
    end

    def initialize(source, number)
      @number = number
      @source = source.force_encoding(Encoding::UTF_8).scrub("?").lines(chomp: true)
    end

    # Returns number and text of each line, and whether it is the one.
    def lines
      return [] unless @number.between?(1, @source.length)

      first = [@number - AROUND, 1].max
      last = [@number + AROUND, @source.length].min
      (first..last).map { |number| [number, @source[number - 1][0, WIDTH], number == @number] }
    end

    # Returns the lines of a text, below a line of a backtrace.
    def indented
      width = lines.last.first.to_s.length
      lines.map { |number, text, marked| "  #{marked ? '>' : ' '} #{number.to_s.rjust(width)} | #{text}".rstrip }
    end
  end
end
