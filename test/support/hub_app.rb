# frozen_string_literal: true

# The Rails app of the tests of live pages (test/apps/rails_hub), served with the hub on.

require "active_support"
require "active_support/message_verifier"
require "json"
require "support/rails_app"
require "support/upgrading"

module HubApp
  include Upgrading

  SOURCE = File.expand_path("../apps/rails_hub", __dir__)
  SECRET = "0123456789abcdef" * 4

  # The name of a stream, signed as Turbo does.
  def self.signed(name, secret = SECRET)
    ActiveSupport::MessageVerifier.new(secret, digest: "SHA256", serializer: JSON).generate(name)
  end

  def setup
    super
    rails_only
  end

  # extra:: further files. upgradable:: a server that a new program can replace
  def hub(workers: 2, settings: {}, env: {}, extra: {}, upgradable: false, **options)
    names = Dir.glob("**/*", base: SOURCE).select { |file| File.file?(File.join(SOURCE, file)) }
    files = names.to_h { |file| [file, File.binread(File.join(SOURCE, file))] }
    settings = { hub: { path: "/cable" }, reload: { watch: "0s", keep: "0s" } }.merge(settings) { |_, one, other| one.merge(other) }
    options = { workers: workers, **RailsApp.options(files: files.merge(extra), env: env, settings: settings), **options }
    upgradable ? launch(app: nil, **options) : start(**options)
  end
end
