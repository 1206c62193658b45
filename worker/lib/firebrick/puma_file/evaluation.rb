# frozen_string_literal: true

# A puma.rb resolves constants in the scope where it is evaluated. So this is outside of all modules, and has no local
# variables: `Report` and `Worker` in a puma.rb are the app's classes, not Firebrick's.
Firebrick::PumaFile.define_singleton_method(:evaluate_text) { @receiver.instance_eval(@text, @place, 1) }
