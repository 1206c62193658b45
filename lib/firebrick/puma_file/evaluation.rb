# frozen_string_literal: true

# A puma.rb finds constants where it is evaluated. So this stands outside of every module, and has no local variables:
# `Report` and `Worker` in a puma.rb are those of the app, not ours.
Firebrick::PumaFile.define_singleton_method(:evaluate_text) { @receiver.instance_eval(@text, @place, 1) }
