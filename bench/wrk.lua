-- Prints one line of JSON with exact figures (wrk's own text rounds them). The only
-- per-request cost is wrk's: no response function is defined, and a request function
-- only where files are asked for at random (paths as in lib/sites.rb).
local upload = tonumber(os.getenv("BENCH_UPLOAD_BYTES") or "0")
if upload > 0 then
  wrk.method = "POST"
  wrk.body = string.rep("x", upload)
  wrk.headers["Content-Type"] = "application/octet-stream"
end

local files = tonumber(os.getenv("BENCH_FILES") or "0")
if files > 0 then
  local folders = tonumber(os.getenv("BENCH_FOLDERS"))
  local requests = {}

  function init()
    math.randomseed(7)
    for index = 0, files - 1 do
      requests[index] = wrk.format("GET", string.format("/%02d/%d.html", index % folders, index))
    end
  end

  function request()
    return requests[math.random(0, files - 1)]
  end
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"seconds":%.6f,"errors":%d,"p50":%.3f,"p99":%.3f,"longest":%.3f}\n',
    summary.requests, summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
