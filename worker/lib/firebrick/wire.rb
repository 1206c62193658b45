# frozen_string_literal: true

# Made from server/ground/wire by `FIREBRICK_REGENERATE=1 cargo test -p wire ruby`.

module Firebrick
  # The constants of docs/internals/wire.md and docs/internals/processes.md.
  module Wire
    VERSION = 13
    HEADER = 12
    MAX_PAYLOAD = 1_114_112
    INITIAL_WINDOW = 1_048_576
    UNKNOWN_TIME = 4_294_967_295

    # Kinds of frames; those of workers have the highest bit.
    module Frame
      REQUEST = 0x01
      WINDOW = 0x02
      ABORT = 0x03
      DRAIN = 0x04
      LEND = 0x05
      RESUME = 0x06
      PROMOTE = 0x07
      COLLECT = 0x08
      INPUT = 0x09
      HEAP = 0x0c
      RESPONSE = 0x81
      BODY = 0x82
      FINISH = 0x83
      INTERIM = 0x84
      HIJACK = 0x85
      FILE = 0x86
      READY = 0x87
      STOPPING = 0x88
      OFFER = 0x89
      TAKEN = 0x8a
      TRACES = 0x8b
      RETURNED = 0x8c
      RESUMED = 0x8d
      EXTEND = 0x8e
      DUE = 0x8f
      COLLECTED = 0x90
      HELLO = 0x91
      ROUTE = 0x92
      USED = 0x93
      PROFILE = 0x98
    end

    # Flags of frames.
    module Flag
      WHOLE = 0x01
      FAILED = 0x01
      MADE = 0x01
      STREAM = 0x02
      FD = 0x80
      LAST = 0x01
    end

    # Capabilities in HELLO.
    module Can
      BESIDE = 0x01
      SCOREBOARD = 0x02
    end

    # Bytes and offsets of a scoreboard slot.
    module Slot
      HEADER = 64
      THREAD = 16
      LINK = 16
      REQUESTS = 0
      FAILURES = 8
      THREADS = 16
      PROFILE = 56
    end

    # Limits of TRACES.
    module Traces
      MOST_LINES = 200
      LONGEST = 1_000
      MOST_BYTES = 524_288
    end

    # Limits of ROUTE.
    module Route
      MOST = 1_000
      LONGEST = 200
    end

    # Records of PROFILE.
    module Profile
      LACKS = 0x08
    end

    # First words of messages from the front.
    module Order
      CONFIGURE = "configure"
      BOOT = "boot"
      FORK = "fork"
      SERVICE = "service"
      KILL = "kill"
      BEFORE_FORK = "before_fork"
      UNLINK = "unlink"
      EXIT = "exit"
      LISTENING = "listening"
      STOPPING = "stopping"
      FAILED = "failed"
    end

    # First words of messages to the front.
    module Report
      PID = "pid"
      CONFIGURED = "configured"
      UNCONFIGURED = "unconfigured"
      LOADING = "loading"
      WARMING = "warming"
      BOOTED = "booted"
      FAILED = "failed"
      FORKED = "forked"
      FORK_FAILED = "fork_failed"
      EXITED = "exited"
      JOBS = "jobs"
      FILES = "files"
      STOP = "stop"
    end

    # How a worker or service ended.
    module End
      EXIT = "exit"
      SIGNAL = "signal"
    end

    # Keys of `boot`.
    module Boot
      WIRE = "wire"
      APP = "app"
      DIR = "dir"
      ENVIRONMENT = "environment"
      CONTROL = "control"
      THREADS_MIN = "threads_min"
      THREADS_MAX = "threads_max"
      FIBERS = "fibers"
      LINKS = "links"
      SHUTDOWN_MS = "shutdown_ms"
      STATEMENT = "statement"
      WORKER_MS = "worker_ms"
      SLOTS = "slots"
      SLOT_LEN = "slot_len"
      COMPACT = "compact"
      OUT_OF_BAND_GC = "out_of_band_gc"
      SLICE_US = "slice_us"
      BLOCKING_US = "blocking_us"
      YJIT = "yjit"
      COMPRESSION = "compression"
      HUB = "hub"
      HUB_RPC = "hub_rpc"
      ALLOCATOR = "allocator"
      EARLY_HINTS = "early_hints"
      ERROR_LOG = "error_log"
      JSON_LOG = "json_log"
      REQUEST_ID = "request_id"
      TEMP_DIR = "temp_dir"
      TAG = "tag"
      MAX_HEAD = "max_head"
      RESPONSE_MEMORY = "response_memory"
      RESPONSE_SPOOL = "response_spool"
      WARMUP = "warmup"
      WARM = "warm"
      WARM_ANYWAY = "warm_anyway"
      WARM_MS = "warm_ms"
      WARM_COMPILED_MS = "warm_compiled_ms"
      BOOT_MS = "boot_ms"
      SENDFILE = "sendfile"
      UNLINK = "unlink"
      SERVICE = "service"
      REPLAY = "replay"
    end

    # Keys of `booted`.
    module Booted
      RUBY = "ruby"
      RACK = "rack"
      MS = "ms"
      NOTE = "note"
      FIBERS = "fibers"
      JOB = "job"
      FILES = "files"
      CONNECTIONS = "connections"
      WARMED = "warmed"
      SERVICE = "service"
      PLACE = "place"
      RESTART = "restart"
      STOP_SIGNAL = "stop_signal"
      STOP_TIMEOUT_MS = "stop_timeout_ms"
      PREFIX = "prefix"
    end

    # First words of the lines from the guard of a service.
    module Guard
      GUARD = "guard"
      PID = "pid"
      FAILED = "failed"
    end

    # Field names that travel as one byte: the code of a name is its position plus one.
    NAMES = %w[
      host user-agent accept accept-language accept-encoding accept-charset connection cookie content-type
      content-length cache-control pragma referer origin upgrade upgrade-insecure-requests authorization
      proxy-authorization if-none-match if-modified-since if-match if-unmodified-since if-range range date dnt te
      trailer transfer-encoding expect from via forwarded x-forwarded-for x-forwarded-proto x-forwarded-host
      x-forwarded-port x-forwarded-ssl x-real-ip x-request-id x-request-start x-queue-start x-requested-with
      x-csrf-token x-http-method-override sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform sec-fetch-dest sec-fetch-mode
      sec-fetch-site sec-fetch-user sec-gpc sec-websocket-key sec-websocket-version sec-websocket-protocol
      sec-websocket-extensions priority purpose sec-purpose save-data keep-alive turbo-frame traceparent tracestate
      cdn-loop cf-connecting-ip cf-ray last-event-id content-encoding
    ].freeze
  end
end
