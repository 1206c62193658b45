# frozen_string_literal: true

require "open3"

# The heap of a template before it forks (worker/native/src/raw/heap.rs), in a process of its own with glibc's malloc.
class HeapTest < Case
  # Prints the free bytes inside the heap before its gaps are filled, then, and when they have been released.
  SCRIPT = <<~RUBY
    require "fiddle"
    require "tempfile"
    require "firebrick/native"
    pointer, int = Fiddle::TYPE_VOIDP, Fiddle::TYPE_INT
    calls = { "malloc" => [[Fiddle::TYPE_SIZE_T], pointer], "free" => [[pointer], Fiddle::TYPE_VOID],
              "fopen" => [[pointer, pointer], pointer], "malloc_info" => [[int, pointer], int], "fclose" => [[pointer], int] }
    C = calls.to_h { |name, type| [name, Fiddle::Function.new(Fiddle.dlopen(nil)[name], *type)] }
    FILE = Tempfile.new("heap")
    free_bytes = lambda do
      file = C["fopen"].call(FILE.path, "w")
      C["malloc_info"].call(0, file)
      C["fclose"].call(file)
      main = File.read(FILE.path)[/<heap nr="0">.*?<\\/heap>/m]
      main.scan(/<total type="\\w+" count="\\d+" size="(\\d+)"/).sum { |size,| size.to_i }
    end
    blocks = Array.new(40_000) { C["malloc"].call(200) }
    blocks.each_with_index { |block, at| C["free"].call(block) if at.even? }
    free_bytes.call
    GC.disable
    before = free_bytes.call
    Firebrick::Native.settle_heap
    settled = free_bytes.call
    Firebrick::Native.release_gaps
    puts [before, settled, free_bytes.call].join(" ")
  RUBY

  def test_gaps_are_filled_and_released
    linux_only "the heap is left as it is"
    skip "not glibc" unless RbConfig::CONFIG["host_os"] == "linux-gnu" || RbConfig::CONFIG["host_os"] == "linux"
    lib = ENV.fetch("FIREBRICK_LIB", File.expand_path("../../lib", __dir__))
    out, status = Open3.capture2({ "LD_PRELOAD" => nil }, RbConfig.ruby, "-I", lib, "-e", SCRIPT)
    assert_predicate status, :success?
    before, settled, released = out.split.map(&:to_i)
    assert_operator before, :>, 4_000_000
    assert_operator settled, :<, before / 4
    assert_operator released, :>, before * 3 / 4
  end
end
