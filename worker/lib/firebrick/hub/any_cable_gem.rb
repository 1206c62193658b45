# frozen_string_literal: true

module Firebrick
  module Hub
    # Checks the settings of AnyCable's gem, which runs the app's channels when `hub.rpc` is set
    # (docs/from-anycable.md).
    module AnyCableGem
      # Broadcast adapters whose messages reach the hub.
      ADAPTERS = %w[firebrick http].freeze

      module_function

      # Returns sentences about settings of the app that contradict the hub.
      # path:: hub.rpc
      def notes(path)
        Hub.install_helper
        return ["hub.rpc is set, but the app has no gem anycable-rails or anycable-core"] unless defined?(::AnyCable)

        [wrong_path(path), wrong_adapter].compact
      end

      # Only the gem for Rails mounts its endpoint by itself.
      def wrong_path(path)
        config = ::AnyCable.config
        return unless config.respond_to?(:http_rpc_mount_path)

        mounted = config.http_rpc_mount_path
        return if mounted && mounted.chomp("/") == path.chomp("/")

        "hub.rpc is #{path}, but http_rpc_mount_path of AnyCable's gem is #{mounted || 'not set'}: " \
          "write http_rpc_mount_path: #{path} into config/anycable.yml"
      end

      def wrong_adapter
        adapter = ::AnyCable.config.broadcast_adapter.to_s
        return if ADAPTERS.include?(adapter)

        "live pages get no broadcasts: broadcast_adapter of AnyCable's gem is #{adapter}; " \
          "write broadcast_adapter: firebrick into config/anycable.yml"
      end
    end
  end
end
