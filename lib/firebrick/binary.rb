# frozen_string_literal: true

module Firebrick
  # Where the `firebrick` program is: in an installed gem, or in a checkout.
  module Binary
    ROOT = File.expand_path("../..", __dir__)
    LOCATIONS = %w[libexec/firebrick target/release/firebrick target/debug/firebrick].freeze

    module_function

    def path
      found = LOCATIONS.map { |location| File.join(ROOT, location) }.find { |file| File.executable?(file) }
      found || abort("firebrick: the program is missing from #{ROOT}/libexec; try: gem pristine firebrick")
    end

    # Replaces this process by the server.
    def exec(*arguments)
      Kernel.exec({ "FIREBRICK_LIB" => File.join(ROOT, "lib") }, [path, "firebrick"], *arguments)
    end
  end
end
