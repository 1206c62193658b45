# frozen_string_literal: true

module Firebrick
  # The rules of the `[sendfile]` table: which file a path in `X-Accel-Redirect` means. Paths are read as nginx reads
  # them.
  #
  # Contract:
  # 1. The path ends at the first `?`. `%41` is decoded once, before a rule is looked for; of a `%` without two digits
  #    behind it is left what nginx leaves.
  # 2. A path that has `..` as a part, or a NUL, before or after decoding, is unsafe, whichever rule it would have.
  # 3. The longest prefix wins.
  class SendfileRules
    # Where a file is: the folder, which nothing may lead out of, and the path in it.
    Place = Struct.new(:folder, :path)

    UPWARDS = %r{(?:\A|/)\.\.(?:/|\z)}n

    # Rules as the front sends them: a prefix, a newline and a folder, the longest prefix first.
    def self.parse(lines)
      new(lines.map { |line| line.b.split("\n", 2) })
    end

    # +rules+ are pairs of a prefix and a folder, the longest prefix first.
    def initialize(rules)
      @rules = rules.map { |prefix, folder| [prefix.b.freeze, folder.b.freeze].freeze }.freeze
    end

    # The Place of a path, :unsafe for one that leads elsewhere, nil if no rule is for it.
    def find(value)
      written = value.b[/\A[^?]*/mn]
      path = decode(written)
      prefix, folder = @rules.find { |one, _| path.start_with?(one) }
      return unless prefix
      return :unsafe if [written, path].any? { |text| text.include?("\0") || text.match?(UPWARDS) }

      Place.new(folder, path.byteslice(prefix.bytesize..))
    end

    private

    # As nginx decodes: a `%` that is no code is dropped, and so is a digit behind it that has no second one, with what
    # took its place.
    def decode(text)
      text.gsub(/%(?:(\h\h)|\h[^\h]?|(.)|\z)/mn) { Regexp.last_match(1)&.hex&.chr || Regexp.last_match(2).to_s }
    end
  end
end
