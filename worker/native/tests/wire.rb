# frozen_string_literal: true

# A second, simple implementation of the frames of docs/internals/wire.md, with which the worker's own is compared.
module Wire
  VERSION = 13
  # Bytes of the flight recorder at the end of a scoreboard slot.
  RECORDER = 34_880
  KINDS = {
    request: 0x01, window: 0x02, abort: 0x03, drain: 0x04, lend: 0x05, resume: 0x06, promote: 0x07, collect: 0x08, input: 0x09, heap: 0x0c, response: 0x81, body: 0x82, end: 0x83,
    interim: 0x84, hijack: 0x85, file: 0x86, ready: 0x87, stopping: 0x88, offer: 0x89, taken: 0x8a, traces: 0x8b,
    returned: 0x8c, resumed: 0x8d, extend: 0x8e, due: 0x8f, collected: 0x90, hello: 0x91,
    route: 0x92, used: 0x93, profile: 0x98
  }.freeze
  NAMES = File.read(File.expand_path("../../../server/ground/wire/src/names.rs", __dir__))[/KNOWN: .*?\];/m].scan(/"(.*?)"/)
              .flatten.freeze

  Frame = Struct.new(:kind, :flags, :id, :payload, :fd, :link, :route) do
    def end? = flags.anybits?(0x01)
    def stream? = flags.anybits?(0x02)
    def fd? = flags.anybits?(0x80)
    def number = payload.unpack1("V")
    def length = payload.unpack1("Q<")

    # Microseconds in the app, on the processor and waiting for the GVL; nil for unknown times.
    def times
      payload.byteslice(kind == :response ? 4 : 0, 12).unpack("V3").map { |us| us unless us == 0xffffffff }
    end

    # Link, id and lines of each thread.
    def traces
      found = []
      at = 0
      while at < payload.bytesize
        link, id, count = payload.byteslice(at, 10).unpack("VVv")
        at += 10
        lines = Array.new(count) do
          length = payload.byteslice(at, 2).unpack1("v")
          at += 2 + length
          payload.byteslice(at - length, length)
        end
        found << [link, id, lines]
      end
      found
    end

    # Status, fields and body bytes.
    def head
      status, count = payload.unpack("vv")
      at = kind == :interim ? 4 : 16
      fields = Array.new(count) do
        name, value = payload.byteslice(at, 6).unpack("vV")
        at += 6 + name + value
        [payload.byteslice(at - name - value, name), payload.byteslice(at - value, value)]
      end
      [status, fields, payload.byteslice(at..)]
    end
  end

  module_function

  def frame(kind, id = 0, payload = "", flags: 0)
    [payload.bytesize, KINDS.fetch(kind), flags, 0, id].pack("VCCvV") << payload.b
  end

  DEFAULTS = {
    method: "GET", target: "/", version: 11, https: false, fields: [["Host", "example.org"]], body: nil, fd_length: nil, measure: false,
    switch: false,
    remote_addr: "127.0.0.1", remote_port: 4711, server_name: "example.org", server_port: "80",
    # A time in the far future: the request counts as not queued.
    asked_us: 1 << 62
  }.freeze

  def request(id, **given)
    r = DEFAULTS.merge(given)
    payload = head(r) << target(r[:target]) << peer(r) << fields(r[:fields]) << r[:body].to_s.b
    frame(:request, id, payload, flags: r[:fd_length] ? 0x80 : 0)
  end

  def head(given)
    body = if given[:fd_length]
             2
           else
             [0, 1][given[:body].to_s.empty? ? 0 : 1]
           end
    [
      given[:version], given[:https] ? 1 : 0, body, (given[:measure] ? 1 : 0) | (given[:switch] ? 2 : 0), given[:fields].length, given[:remote_port],
      given[:asked_us], given[:fd_length] || given[:body].to_s.bytesize, given[:method].bytesize, given[:method]
    ].pack("CCCCvvQ<Q<Ca*")
  end

  def target(text)
    start = text[%r{\Ahttps?://[^/?]*}].to_s.length
    path, query = text[start..].split("?", 2)
    query_at = start + path.to_s.length + (query ? 1 : 0)
    [text.bytesize, start, path.to_s.length, query_at, query.to_s.length].pack("V5") << text.b
  end

  def peer(given)
    [given[:remote_addr].bytesize, given[:remote_addr], given[:server_name].bytesize, given[:server_name],
     given[:server_port].bytesize, given[:server_port]].pack("Ca*va*Ca*")
  end

  def fields(list)
    seen = []
    list.map do |name, value|
      repeated = seen.include?(name.downcase) ? 0x80 : 0
      seen << name.downcase
      code = NAMES.index(name.downcase)
      start = code ? [(code + 1) | repeated].pack("C") : [repeated, name.bytesize, name].pack("Cva*")
      start + [value.bytesize].pack("V") + value.b
    end.join.b
  end
end
