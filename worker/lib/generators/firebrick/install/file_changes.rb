# frozen_string_literal: true

module Firebrick
  module Generators
    # Changes files of the app. In an installation Thor's action for a whole file shows the change and asks. When the
    # generator is taken back, only its own lines are, so nothing is asked, and Thor's action would delete the file.
    module FileChanges
      private

      def installing?
        behavior == :invoke
      end

      # Returns the text of a file of the app, or nil.
      def read(path)
        full = File.join(destination_root, path)
        File.read(full, encoding: "UTF-8") if File.file?(full)
      end

      # Yields the text of a file, or nil, and writes the text that the block returns, perhaps with a remark. It
      # deletes the file if that is nil.
      def change(path)
        old = read(path)
        new, about = yield(old)
        remark(about) if about
        return delete(path) if new.nil?
        return say_status(:identical, path, :blue) if new == old

        installing? ? create_file(path, new) : restore(path, new)
      end

      # The same for a file that may be missing.
      def change_existing(path, &block)
        change(path, &block) if read(path)
      end

      def restore(path, text)
        say_status(:restore, path)
        File.write(File.join(destination_root, path), text) unless options[:pretend]
      end

      def delete(path)
        say_status(:remove, path, :red)
        File.delete(File.join(destination_root, path)) unless options[:pretend]
      end
    end
  end
end
