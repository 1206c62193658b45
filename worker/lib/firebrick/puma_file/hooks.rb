# frozen_string_literal: true

require "firebrick/report"

module Firebrick
  class PumaFile
    # Installs the blocks of a puma.rb as hooks. As in Puma, an exception is logged and the other blocks still run.
    class Hooks
      # Puma's names and Firebrick's.
      NAMES = {
        before_fork: :before_fork, before_refork: :before_refork, before_worker_boot: :after_fork,
        before_worker_shutdown: :before_worker_exit, before_worker_fork: :before_worker_fork,
        after_worker_fork: :after_worker_fork, after_worker_shutdown: :after_worker_exit,
        before_thread_start: :before_thread_start, before_thread_exit: :before_thread_exit, out_of_band: :out_of_band
      }.freeze

      def initialize(file)
        @file = file
        # Shared by the blocks of one key in one process.
        @data = Hash.new { |data, key| data[key] = {} }
      end

      def install
        NAMES.each do |pumas, ours|
          @file.blocks[pumas].each { |key, block| Firebrick.public_send(ours, &guarded(pumas, key, block)) }
        end
        handler = @file.options[:lowlevel_error_handler]
        Firebrick.on_error(&error_handler(handler)) if handler
      end

      private

      # Passes arguments to blocks without parameters as well, which procs ignore.
      def guarded(name, key, block)
        data = @data
        lambda do |argument = nil|
          key ? block.call(argument, data[key]) : block.call(argument)
        rescue StandardError => e
          Report.log("firebrick: #{Exchange.name}: #{name} of puma.rb: #{Report.text(e)}")
        end
      end

      # Passes as many arguments as the handler takes, as Puma does: the exception, the env, the status.
      def error_handler(handler)
        arity = handler.respond_to?(:arity) ? handler.arity : handler.method(:call).arity
        lambda do |error, env|
          case arity
          when 0 then handler.call
          when 1 then handler.call(error)
          when 2 then handler.call(error, env)
          else handler.call(error, env, 500)
          end
        end
      end
    end
  end
end
