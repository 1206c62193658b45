# frozen_string_literal: true

# Required in the processes of an app by RUBYOPT: keeps the compiled code of gems for the next one, as bootsnap does for most Rails
# apps. That halves the processor time of Rails' start, of which a run of all tests has hundreds.
#
# Contract: files of the app itself are not kept, because tests change them within a second.

module CompiledGems
  FOLDER = ENV.fetch("COMPILED_GEMS")
  GEMS = %r{\A/(usr|opt|var/lib)/}

  def load_iseq(path)
    return unless GEMS.match?(path)

    stat = File.stat(path)
    kept = File.join(FOLDER, "#{path.tr('/', '%')}-#{stat.mtime.to_f}-#{stat.size}")
    return load_from_binary(File.binread(kept)) if File.exist?(kept)

    compile_file(path).tap { |code| CompiledGems.keep(kept, code) }
  rescue SystemCallError, RuntimeError, SyntaxError
    # Ruby compiles it then, and says what is wrong.
    nil
  end

  # Another process may be about to write the same.
  def self.keep(kept, code)
    beside = "#{kept}.#{Process.pid}.#{Thread.current.object_id}"
    File.binwrite(beside, code.to_binary)
    File.rename(beside, kept)
  end
end

RubyVM::InstructionSequence.singleton_class.prepend(CompiledGems) if defined?(RubyVM::InstructionSequence)
