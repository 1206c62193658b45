# frozen_string_literal: true

# Measures the cost of a request in a worker: CPU microseconds, by batch size and number of fields.
#
#   ruby worker/native/tests/speed.rb [threads]
#
# Needs a release build in worker/lib/firebrick/native.so. Prints a Markdown table; asserts nothing.

require_relative "fake_front"

BROWSER = {
  "Host" => "localhost:9292", "User-Agent" => "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
  "Accept" => "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "Accept-Language" => "en-US,en;q=0.5",
  "Accept-Encoding" => "gzip, deflate, br, zstd", "Connection" => "keep-alive", "Cookie" => "session=#{'a' * 64}",
  "Upgrade-Insecure-Requests" => "1", "Sec-Fetch-Dest" => "document", "Sec-Fetch-Mode" => "navigate",
  "Sec-Fetch-Site" => "none", "Priority" => "u=0, i"
}.to_a.freeze

APPS = {
  "hello" => "run ->(_) { [200, { 'content-type' => 'text/plain' }, ['Hello, World']] }",
  "page" => "PAGE = 'x' * 3936\nrun ->(_) { [200, { 'content-type' => 'text/html' }, [PAGE]] }"
}.freeze

# Returns the CPU microseconds so far, and the clock ticks spent in user mode and in all.
def cpu(pid)
  user, system = File.read("/proc/#{pid}/stat").split(") ").last.split.values_at(11, 12).map(&:to_i)
  [Dir["/proc/#{pid}/task/*/schedstat"].sum { |file| File.read(file).to_i } / 1000.0, user, user + system]
end

def exchange(socket, requests, rounds)
  rounds.times do
    socket.write(requests.join)
    @sent = @sent.to_i + requests.length
    ends = 0
    ends += count(socket, requests) while ends < requests.length
  end
end

# Counts responses in the received bytes; a frame cut in two is carried over.
def count(socket, requests)
  @rest = (@rest || "".b) << socket.readpartial(1 << 20)
  at = 0
  found = 0
  while @rest.bytesize >= at + 4 && (length = @rest.unpack1("V", offset: at) + 12) <= @rest.bytesize - at
    kind = Wire::KINDS.key(@rest.getbyte(at + 4))
    send_again(socket, requests, @rest.unpack1("Q<", offset: at + 12)) if kind == :returned
    found += 1 if kind == :response
    at += length
  end
  @rest = @rest.byteslice(at..)
  found
end

# On a busy machine a worker may return requests, as if the one before them were slow.
def send_again(socket, requests, from)
  again = requests.last(@sent - from)
  socket.write(Wire.frame(:resume) + again.join)
  @sent += again.length
end

def measure(worker, fields, size, total)
  socket = worker.instance_variable_get(:@links).first
  requests = (1..size).map { |id| Wire.request(id, fields: fields) }
  exchange(socket, requests, 20_000 / size)
  before = cpu(worker.pid)
  exchange(socket, requests, total / size)
  all, user, ticks = cpu(worker.pid).zip(before).map { |now, then_| now - then_ }
  [all / total, all / total * user / ticks]
end

max = Integer(ARGV.fetch(0, 1))
puts "| app | fields | batch | CPU µs | of it in user mode |", "|---|---|---|---|---|"
APPS.each do |name, rackup|
  FakeFront.open(rackup, threads: [1, max]) do |_, worker|
    @sent = 0
    @rest = "".b
    [BROWSER.first(1), BROWSER].product([1, 16, 64]).each do |fields, size|
      all, user = measure(worker, fields, size, size == 1 ? 200_000 : 1_000_000)
      puts format("| %s | %d | %d | %.2f | %.2f |", name, fields.length, size, all, user)
    end
  end
end
