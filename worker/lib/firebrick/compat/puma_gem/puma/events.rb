# frozen_string_literal: true

# For `require "puma/events"` where the gem is not in the bundle: firebrick/compat/puma has been loaded.
