//! Options of Ruby and the app.

use std::path::PathBuf;
use std::time::Duration;

use super::entry::{Category, bare, long};
use super::section::section;
use crate::kind::lists::{Generations, Proxies, RequestPaths};
use crate::kind::numbers::{Period, Size};
use crate::kind::texts::{Choice, HeaderName, Program, Switch};
use crate::kind::wrappers::OrOff;
use crate::value::allocator::Allocator;
use crate::value::proxies::TrustedProxies;
use crate::value::refork::ReforkAfter;
use crate::value::yjit::Yjit;

section! { Category::Rack;
    /// How Ruby and the app are run.
    Rack:

    /// Ruby program that runs the app
    ruby: PathBuf = Program, {
        key: "ruby",
        flags: &[long("ruby", "PATH")],
        default: "ruby",
        more: "A name without a slash is looked up in PATH. If another Ruby runs the gem's launcher, rackup or bin/rails server, \
               the default is that one.",
        reloadable: true,
        reload_only: true,
    }
    /// Compile the app with YJIT: auto, on or off
    yjit: Yjit = Choice(Yjit::WORDS), {
        key: "rack.yjit",
        flags: &[long("yjit", "auto|on|off")],
        default: "auto",
        more: "auto enables YJIT with Ruby 3.3 and later, if Ruby was built with it, when the app is loaded and before workers are \
               forked. With Rails 7.2 or later, config.yjit of Rails decides instead. on enables YJIT with Ruby 3.1 and 3.2, too; the \
               banner says so if Ruby was built without it. off leaves YJIT to RUBYOPT, RUBY_YJIT_ENABLE and the app. For an attached server auto \
               means off. See docs/workers.md.",
        reloadable: true,
        reload_only: true,
        known_as: &["yjit", "jit", "enable_yjit"],
    }
    /// Memory allocator of Ruby's processes: auto, jemalloc or system
    allocator: Allocator = Choice(Allocator::WORDS), {
        key: "rack.allocator",
        flags: &[long("allocator", "auto|jemalloc|system")],
        default: "auto",
        more: "auto uses jemalloc if libjemalloc.so.2 is installed, unless LD_PRELOAD or a variable of the C library's allocator \
               (MALLOC_ARENA_MAX…) is set. jemalloc uses it in any case; the banner says so if it is not installed. system \
               leaves the allocator to Ruby and LD_PRELOAD. Linux only. See docs/workers.md.",
        reloadable: true,
        reload_only: true,
        known_as: &["malloc", "jemalloc"],
    }
    /// Proxies whose X-Forwarded-* headers are trusted
    trusted_proxies: TrustedProxies = Proxies, {
        key: "rack.trusted_proxies",
        flags: &[long("trusted-proxies", "LIST")],
        default: "127.0.0.0/8,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7,unix",
        default_shown: Some("loopback and private networks, unix"),
        more: "A list of networks such as 10.0.0.0/8 or ::1, and unix for every client on a Unix socket; or only none.",
        known_as: &["trusted_proxy"],
    }
    /// Offer rack.early_hints (103 responses)
    early_hints: bool = Switch, {
        key: "rack.early_hints",
        flags: &[bare("early-hints", "true"), bare("no-early-hints", "false")],
        default: "false",
        more: "Not all proxies and clients support 103: nginx before 1.29 waits forever, and some libraries take the 103 for the \
               final response. Turn it on if the clients are browsers, or a proxy that supports 103.",
    }
    /// Paths to request once before workers are forked
    warmup: Vec<String> = RequestPaths, {
        key: "rack.warmup",
        flags: &[long("warmup", "PATHS")],
        default_shown: Some("none"),
        more: "All workers then share the code and data that the app loads and caches on its first requests. Separate paths \
               with commas or repeat the flag.",
        reloadable: true,
        reload_only: true,
    }
    /// Collect and compact the heap before workers are forked
    compact: bool = Switch, {
        key: "rack.compact",
        flags: &[bare("compact", "true"), bare("no-compact", "false")],
        off: "Do not compact the heap before workers are forked",
        default: "true",
        more: "Workers then share more memory. Turn it off if a native extension does not support GC.compact.",
        reloadable: true,
        reload_only: true,
    }
    /// Run full garbage collections between requests
    out_of_band_gc: bool = Switch, {
        key: "rack.out_of_band_gc",
        flags: &[bare("out-of-band-gc", "true"), bare("no-out-of-band-gc", "false")],
        default: "false",
        more: "One worker at a time collects, while other workers have free threads, and gets no requests meanwhile. It works best with \
               Ruby 3.4 or later, which then runs no full collection during requests unless a worker has waited 30 s for its turn: \
               docs/workers.md.",
        reloadable: true,
        reload_only: true,
        known_as: &["oob_gc", "out_of_band_gc", "out_of_band", "oobgc"],
    }
    /// Number of requests after which a worker becomes the template; 0 is off
    refork_after: ReforkAfter = Generations, {
        key: "rack.refork_after",
        flags: &[long("refork-after", "LIST")],
        default: "0",
        more: "The server forks new workers from this template, so they share the code and data that it has loaded and cached. A list has one \
               number for each generation of workers, counted from its forks. The last number repeats; a 0 at the end ends reforking. The \
               app and its libraries must be safe to fork while they are in use: read docs/refork.md first. It has no effect in development \
               or with a single worker.",
        reloadable: true,
        known_as: &["refork_after", "fork_worker", "refork", "refork_condition"],
    }
    /// Maximum time that a fiber can compute while others are ready
    fiber_slice: Option<Duration> = OrOff(Period { min: Duration::from_millis(2), max: Duration::from_secs(1) }), {
        key: "rack.fiber_slice",
        flags: &[long("fiber-slice", "TIME|off")],
        default: "10ms",
        more: "Measured in CPU time. After this time the other fibers of the thread run first, so the app must be as thread-safe as with \
               threads. Only with `fibers`. It does not apply while a file is loaded or inside Firebrick.unsliced { }: docs/fiber-slices.md.",
        reloadable: true,
        reload_only: true,
        known_as: &["slice", "fibers.slice", "time_slice", "quantum"],
    }
    /// Stack size of a fiber
    fiber_stack: Option<usize> = OrOff(Size { min: 64 << 10, max: 8 << 20 }), {
        key: "rack.fiber_stack",
        flags: &[long("fiber-stack", "SIZE|off")],
        default: "off",
        more: "The size limits the depth of calls in a request: 1MiB, as with threads, allows about 9,300 levels. off uses \
               RUBY_FIBER_VM_STACK_SIZE or Ruby's default of 128KiB, which allows about 1,150. Only the used part takes memory. Only with \
               `fibers`: docs/fibers.md.",
        reloadable: true,
        reload_only: true,
        known_as: &["fiber_stack", "stack_size", "fiber_stack_size", "fiber_vm_stack_size"],
    }
    /// Log each call that blocks a thread's fibers for longer than this
    blocking_call: Option<Duration> = OrOff(Period { min: Duration::from_millis(10), max: Duration::from_mins(10) }), {
        key: "rack.blocking_call",
        flags: &[long("blocking-call", "TIME|off")],
        default: "100ms",
        more: "The log line has the source line and the request, at most once a minute per source line. All calls are counted. Only with \
               `fibers`: docs/fibers.md.",
        reloadable: true,
        reload_only: true,
        known_as: &["blocking_calls", "fibers.blocking_call", "slow_callback_duration"],
    }
    /// Header field that carries the request id in requests and responses
    request_id_header: Option<String> = OrOff(HeaderName), {
        key: "rack.request_id_header",
        flags: &[long("request-id-header", "NAME|off")],
        default: "X-Request-Id",
    }
}
