class Once
  attr_reader :closed

  def initialize(*parts)
    @parts = parts
  end

  def each(&block)
    @parts.each(&block)
  end

  def close
    @closed = true
  end
end

of = lambda { |answer| H2O::Prometheus.new(lambda { |_| answer }).call(env) }
body = Once.new('{"server-version":"1\"0","connections":3,"http2":{"read.closed":', '1.5},"threads":[1],"name":"x","none":null}')
status, headers, lines = of.call([200, { 'content-type' => 'application/json' }, body])
same 200, status
same 'text/plain; version=0.0.4; charset=utf-8', headers['content-type']
same "# TYPE h2o_connections gauge\nh2o_connections{version=\"10\"} 3\n" \
     "# TYPE h2o_http2_read_closed gauge\nh2o_http2_read_closed{version=\"10\"} 1.5\n", lines.join
same true, body.closed
same [404, {}, ['no']], of.call([404, {}, ['no']])
same [200, {}, ['no JSON']], of.call([200, {}, ['no ', 'JSON']])
same [200, {}, ['[1]']], of.call([200, {}, ['[1]']])
