# frozen_string_literal: true

# Fibers take turns when they compute for long (`rack.fiber_slice`).
module Firebrick
  # Runs the block without pre-emption by other fibers of the thread, however long it computes: for code that would not
  # be safe with threads either. While it waits, others run.
  def self.unsliced
    return yield unless defined?(Fibers) && Fibers.here?

    Native.fiber_unsliced(true)
    begin
      yield
    ensure
      Native.fiber_unsliced(false)
    end
  end
end
