# frozen_string_literal: true

require "java"

module Firebrick
  module Pure
    class Scoreboard
      # With Java's help the slot is a part of this process's memory. A fence takes the place of the system call: what
      # is written before it is seen before what is written or read after it.
      class Mapped
        Fence = java.lang.invoke.VarHandle
        BOTH_DIRECTIONS = java.nio.channels.FileChannel::MapMode::READ_WRITE

        def initialize(file, start, length)
          # Java opens no descriptor that it is given.
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

        # The memory goes with the process.
        def close; end
      end
    end
  end
end
