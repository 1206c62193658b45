# frozen_string_literal: true

# Responses that go to a disk because memory is scarce: a disk that does not move holds up no client that needs none.

require "support/memory_case"

class MemoryDiskTest < MemoryCase
  quiet! 60

  # A file system of its own, whose writers can be stopped.
  def with_disk
    skip "needs the right to mount" unless Process.uid.zero?
    Dir.mktmpdir do |dir|
      image, disk = %w[image disk].map { |name| File.join(dir, name) }
      Dir.mkdir(disk)
      File.open(image, "w") { |file| file.truncate(512 << 20) }
      run = ->(*command) { system(*command, out: File::NULL, err: File::NULL) }
      skip "cannot mount here" unless run.call("mkfs.ext4", "-q", image) && run.call("mount", "-o", "loop", image, disk)
      begin
        yield disk
      ensure
        run.call("fsfreeze", "-u", disk)
        wait_until("the disk to be free", within: 20) { run.call("umount", disk) }
      end
    end
  end

  it "serves others while the disk is stuck, and goes on when it moves again" do
    with_disk do |disk|
      own = serve(args: ["--temp-dir", disk], files: { "public/page.html" => "a page" }, limits: { memory: "64MiB" },
                  settings: { files: { public: "always" } })
      assert system("fsfreeze", "-f", disk)
      clients = %w[/small /chunked /string].flat_map { |path| Array.new(8) { stalled(own, path, 50) } }
      # The most at any time: clients that read nothing are given up meanwhile.
      most = 0
      waits = Array.new(20) do
        most = [most, own.stats["memory"]["responses_bytes"]].max
        page = elapsed { assert_equal "a page", get("/page.html", to: own, headers: GOOD).body }
        assert_operator page, :<, 5, "a file needs no disk"
        elapsed { assert_equal("quick", until_served { get("/", to: own, headers: GOOD) }) }
      end
      puts "#{name}: #{waits.map { |wait| wait.round(2) }} #{own.stats['memory']}" if ENV["TEST_VERBOSE"]
      assert_operator most, :>, MIB, "responses wait for the disk"
      assert system("fsfreeze", "-u", disk)
      clients.each(&:close)
      assert_given_back(own)
    ensure
      system("fsfreeze", "-u", disk, err: File::NULL)
      own&.finish
    end
  end

  # More responses than a disk can take at a time, each too large for memory: requests wait for the disk, and are served.
  it "serves others beside a burst of responses for the disk" do
    own = serve(limits: { memory: "64MiB" })
    clients, stats = assert_within_memory(own) { Array.new(24) { |number| stalled(own, number.even? ? "/chunked" : "/string", 50) } }
    assert_operator stats["reached_files"], :>, 0, stats.to_s
    clients.each(&:close)
    assert_given_back(own)
  end
end
