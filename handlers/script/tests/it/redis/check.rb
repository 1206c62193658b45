# Failures are collected, so that one run reports all of them.
WRONG = []

def wrong(what)
  WRONG << "line #{caller(2)[0].to_s.split(':')[1]}: #{what}"
  raise WRONG.join("\n") if WRONG.size > 20
end

def check(expected, got)
  wrong("expected #{expected.inspect}, got #{got.inspect}") unless expected == got && expected.class == got.class
end

# The message of the expected exception.
def fails(kind)
  begin
    yield
  rescue Exception => e
    return e.message if e.is_a?(kind)
    wrong("expected #{kind}, got #{e.inspect}")
    return ''
  end
  wrong("no #{kind} was raised")
  ''
end
