# frozen_string_literal: true

module Firebrick
  # The rules of the `[sendfile]` table, which map a path in `X-Accel-Redirect` to a file. Paths are read as nginx reads
  # them.
  #
  # Contract:
  # 1. The path ends at the first `?`. `%41` is decoded once, before the look-up of a rule. A `%` without two digits
  #    is treated as nginx treats it.
  # 2. A path with a part `..`, or with a NUL, before or after decoding, is unsafe, whichever rule matches it.
  # 3. The longest prefix wins.
  class SendfileRules
    # The location of a file: the folder, which it must not leave, and the path in it.
    Place = Struct.new(:folder, :path)

    UPWARDS = %r{(?:\A|/)\.\.(?:/|\z)}n.freeze

    # Parses rules as the front sends them: a prefix, a newline and a folder, the longest prefix first.
    def self.parse(lines)
      new(lines.map { |line| line.b.split("\n", 2) })
    end

    # +rules+ are pairs of a prefix and a folder, the longest prefix first.
    def initialize(rules)
      @rules = rules.map { |prefix, folder| [prefix.b.freeze, folder.b.freeze].freeze }.freeze
    end

    # Returns the Place of a path; :unsafe for one that leads elsewhere; nil if no rule matches.
    def find(value)
      written = value.b[/\A[^?]*/mn]
      path = decode(written)
      prefix, folder = @rules.find { |one, _| path.start_with?(one) }
      return unless prefix
      return :unsafe if [written, path].any? { |text| text.include?("\0") || text.match?(UPWARDS) }

      Place.new(folder, path.byteslice(prefix.bytesize..))
    end

    private

    # Decodes as nginx does: a `%` that starts no code is dropped, as is a single digit after it, with the character
    # that replaces the second digit.
    def decode(text)
      text.gsub(/%(?:(\h\h)|\h[^\h]?|(.)|\z)/mn) { Regexp.last_match(1)&.hex&.chr || Regexp.last_match(2).to_s }
    end
  end
end
