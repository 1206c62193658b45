# frozen_string_literal: true

require "java"

module Firebrick
  module Pure
    class Scoreboard
      # On Java the slot is mapped into this process's memory. A fence replaces the system call: earlier writes
      # are visible before later reads and writes.
      class Mapped
        Fence = java.lang.invoke.VarHandle
        BOTH_DIRECTIONS = java.nio.channels.FileChannel::MapMode::READ_WRITE

        def initialize(file, start, length)
          # Java cannot open a file by its descriptor.
          access = java.io.RandomAccessFile.new("/proc/self/fd/#{file.fileno}", "rw")
          @memory = access.channel.map(BOTH_DIRECTIONS, start, length)
          @memory.order(java.nio.ByteOrder::LITTLE_ENDIAN)
          (0...length).step(8) { |offset| put(offset, 0) }
          fence
        ensure
          access&.close
        end

        def put(offset, number)
          @memory.put_long(offset, number)
        end

        def fence
          Fence.full_fence
        end

        def get(offset)
          @memory.get_long(offset)
        end

        # The mapping ends with the process.
        def close; end
      end
    end
  end
end
