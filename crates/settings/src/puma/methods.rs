//! All methods of Puma's DSL and their effects.
//!
//! Contract: each method has one row, with its older names. The text says in one line what the method does here, or why it does nothing.

use super::super::nearest::nearest;
use Class::{Always, Background, Hook, Ignored, Mapped, Reads, Request};

/// The effect of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Sets options.
    Mapped,
    /// Asks for something that this server always does.
    Always,
    /// Its block runs at the same moment as in Puma, or at the nearest one.
    Hook,
    /// Changes something that the app finds in a request.
    Request,
    /// Runs in a process beside the workers.
    Background,
    /// Controls the evaluation of the file.
    Reads,
    /// Does nothing.
    Ignored,
}

impl Class {
    /// Returns the name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Mapped => "mapped",
            Always => "always so",
            Hook => "hook",
            Request => "in requests",
            Background => "beside the workers",
            Reads => "read",
            Ignored => "ignored",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// The name in Puma 8, or the last name that the method had.
    pub name: &'static str,
    /// Names in Puma 5 to 8 with the same meaning.
    pub also: &'static [&'static str],
    pub class: Class,
    /// The effect here; for an ignored method, the reason.
    pub text: &'static str,
}

const fn method(name: &'static str, class: Class, text: &'static str) -> Method {
    Method { name, also: &[], class, text }
}

const fn named(
    name: &'static str,
    also: &'static [&'static str],
    class: Class,
    text: &'static str,
) -> Method {
    Method { name, also, class, text }
}

/// All methods, in the order of docs/puma-rb.md.
pub const METHODS: &[Method] = &[
    method("port", Mapped, "`port`, and `host` if it is given; beside other addresses one more of `bind`"),
    method("bind", Mapped, "`bind`; options such as `?backlog=`, `?umask=`, `?cert=` are Puma's"),
    method(
        "ssl_bind",
        Mapped,
        "`bind = \"ssl://…\"`; without a certificate on localhost also `https = true`",
    ),
    method(
        "set_remote_address",
        Mapped,
        "`proxy_protocol: :v1` is an option of `bind`; else sets REMOTE_ADDR",
    ),
    method("workers", Mapped, "`workers`; 0 is one worker, `:auto` is `\"auto\"`"),
    method("threads", Mapped, "`threads`; a minimum of 0 is 1"),
    method("environment", Mapped, "`environment`"),
    method("rackup", Mapped, "the rackup file, unless one was typed"),
    method("app", Mapped, "what is served, in place of `config.ru`"),
    method("directory", Mapped, "the app's directory, unless one was typed"),
    method("pidfile", Mapped, "`pidfile`"),
    method("tag", Mapped, "`tag`"),
    method("log_requests", Mapped, "`log.access`"),
    method("quiet", Mapped, "`log.access = \"off\"`"),
    method(
        "stdout_redirect",
        Mapped,
        "`log.error`, and with `log_requests` `log.access`; what the app prints goes to the same files, which are always appended to",
    ),
    method("early_hints", Mapped, "`rack.early_hints`"),
    method("worker_timeout", Mapped, "`timeouts.worker`: limits each request, not only a process that hangs"),
    method("worker_boot_timeout", Mapped, "`timeouts.worker_boot`"),
    method("worker_shutdown_timeout", Mapped, "`timeouts.shutdown`"),
    method(
        "force_shutdown_after",
        Mapped,
        "`timeouts.shutdown`; `:immediately` is 0, `:forever` leaves it as it is",
    ),
    method("persistent_timeout", Mapped, "`timeouts.keep_alive`"),
    method("enable_keep_alives", Mapped, "`timeouts.keep_alive = 0` when it is false"),
    method("first_data_timeout", Mapped, "`timeouts.header`"),
    named("max_keep_alive", &["max_fast_inline"], Mapped, "`limits.max_requests_per_connection`"),
    method("http_content_length_limit", Mapped, "`limits.max_body`"),
    method("allow_underscore_headers", Mapped, "`rack.allow_underscore_headers`"),
    method("activate_control_app", Mapped, "`control` and `control_token`; `\"auto\"` is the default here"),
    method("fork_worker", Mapped, "`rack.refork_after`"),
    method(
        "out_of_band",
        Hook,
        "runs between requests when a full garbage collection is due, in one worker at a time (`rack.out_of_band_gc`)",
    ),
    method(
        "before_fork",
        Hook,
        "runs in the template, before it forks its first worker (`Firebrick.before_fork`)",
    ),
    named(
        "before_worker_boot",
        &["on_worker_boot"],
        Hook,
        "runs in each worker before it takes requests (`Firebrick.after_fork`)",
    ),
    named(
        "before_worker_shutdown",
        &["on_worker_shutdown"],
        Hook,
        "runs in each worker after its last request (`Firebrick.before_worker_exit`)",
    ),
    named("before_worker_fork", &["on_worker_fork"], Hook, "runs in the template before each fork"),
    named("after_worker_fork", &["after_worker_boot"], Hook, "runs in the template after each fork"),
    method(
        "after_worker_shutdown",
        Hook,
        "runs in the template when a worker has exited; gets its index, pid and status",
    ),
    named(
        "before_refork",
        &["on_refork"],
        Hook,
        "runs in the process that becomes the next template (`Firebrick.before_refork`)",
    ),
    named("before_thread_start", &["on_thread_start"], Hook, "runs in each thread before its first request"),
    named("before_thread_exit", &["on_thread_exit"], Hook, "runs in each thread after its last request"),
    method("lowlevel_error_handler", Hook, "makes the response when the app raises (`Firebrick.on_error`)"),
    method("rack_url_scheme", Request, "sets `rack.url_scheme`"),
    method("supported_http_methods", Request, "other methods get 501"),
    method("plugin", Background, "runs in a process beside the workers; `:tmp_restart` is built in"),
    named("after_booted", &["on_booted"], Background, "runs when the server serves"),
    named("after_stopped", &["on_stopped"], Background, "runs when the server stops"),
    named(
        "before_restart",
        &["on_restart"],
        Background,
        "runs when this process ends: new code replaces it, or the server stops",
    ),
    method("single", Reads, "evaluated when there is at most one worker"),
    method("cluster", Reads, "evaluated when there are several workers"),
    method("load", Reads, "evaluates another file, in its place"),
    method("inject", Reads, "evaluates the block"),
    method("get", Reads, "returns what the file has set so far"),
    method("set_default_host", Reads, "the host of each `port` behind it"),
    method("default_host", Reads, "returns that host"),
    method("clear_binds!", Reads, "forgets the addresses before it"),
    method(
        "preload_app!",
        Always,
        "workers are forked from a template that has loaded the app, and a reload replaces it all the same",
    ),
    method(
        "bind_to_activated_sockets",
        Always,
        "sockets that systemd has opened are used where their address is one of `bind`",
    ),
    method(
        "drain_on_shutdown",
        Always,
        "requests that have arrived are served before the server ends (`timeouts.shutdown`)",
    ),
    method("queue_requests", Always, "the front reads requests whole before a worker gets them"),
    method(
        "wait_for_less_busy_worker",
        Always,
        "there is one queue for all workers; none takes a request while another is free",
    ),
    method("mutate_stdout_and_stderr_to_sync_on_write", Always, "what workers print appears at once"),
    method(
        "nakayoshi_fork",
        Always,
        "the heap is collected and compacted before workers are forked (`rack.compact`)",
    ),
    method(
        "prune_bundler",
        Ignored,
        "the server itself is no gem in your bundle, so a new release brings its own Gemfile without it",
    ),
    method("extra_runtime_dependencies", Ignored, "it belongs to prune_bundler, which is not needed"),
    method("restart_command", Ignored, "`firebrick upgrade` starts the program again as it was started"),
    method(
        "after_refork",
        Ignored,
        "a worker that has been reforked serves no more, so nothing has to be opened again in it",
    ),
    named(
        "fiber_per_request",
        &["clean_thread_locals"],
        Ignored,
        "requests run on threads, whose locals stay: use ActiveSupport::CurrentAttributes or clear them",
    ),
    method("max_io_threads", Ignored, "there is one kind of thread; raise `threads` for work that waits"),
    method("io_selector_backend", Ignored, "the front waits for sockets by epoll, outside of Ruby"),
    method(
        "worker_check_interval",
        Ignored,
        "the front sees at once when a worker ends or makes no progress",
    ),
    method("worker_culling_strategy", Ignored, "a reload replaces the youngest workers first"),
    method("idle_timeout", Ignored, "the server does not end by itself"),
    method("raise_exception_on_sigterm", Ignored, "after TERM the server ends with exit code 0"),
    method(
        "shutdown_debug",
        Ignored,
        "PWR makes a worker write the backtraces of its threads; `firebrick deaths` keeps those of workers that were killed",
    ),
    method(
        "state_path",
        Ignored,
        "`firebrick status`, `stop` and `reload` find the server by its directory; `pidfile` is there for other tools",
    ),
    method("state_permission", Ignored, "there is no state file"),
    method("log_formatter", Ignored, "the format of the access log is `log.format`"),
    method(
        "custom_logger",
        Ignored,
        "the access log is written by the front, where there is no Ruby (`log.access`, `log.format`)",
    ),
    method("debug", Ignored, "there are no debug messages to switch on"),
    method("silence_single_worker_warning", Ignored, "there is no such warning"),
    method(
        "silence_fork_callback_warning",
        Ignored,
        "there is no such warning: hooks run with one worker, too",
    ),
];

impl Method {
    /// Returns the row of a method, by any of its names.
    pub fn find(name: &str) -> Option<&'static Method> {
        METHODS.iter().find(|method| method.names().any(|known| known == name))
    }

    /// Returns all its names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.also.iter().copied())
    }
}

/// Returns the method with the most similar name.
pub fn nearest_method(written: &str) -> Option<&'static str> {
    nearest(written, METHODS.iter().flat_map(Method::names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The public methods of the DSL in Puma 5.0, 5.6, 6.0, 6.6, 7.0, 7.2 and 8.0 together.
    const PUMA: &str = "activate_control_app after_booted after_refork after_stopped after_worker_boot after_worker_fork \
        after_worker_shutdown allow_underscore_headers app before_fork before_refork before_restart before_thread_exit \
        before_thread_start before_worker_boot before_worker_fork before_worker_shutdown bind bind_to_activated_sockets \
        clean_thread_locals clear_binds! cluster custom_logger debug default_host directory drain_on_shutdown early_hints \
        enable_keep_alives environment extra_runtime_dependencies fiber_per_request first_data_timeout force_shutdown_after \
        fork_worker get http_content_length_limit idle_timeout inject io_selector_backend load log_formatter log_requests \
        lowlevel_error_handler max_fast_inline max_io_threads max_keep_alive mutate_stdout_and_stderr_to_sync_on_write \
        nakayoshi_fork on_booted on_refork on_restart on_stopped on_thread_exit on_thread_start on_worker_boot on_worker_fork \
        on_worker_shutdown out_of_band persistent_timeout pidfile plugin port preload_app! prune_bundler queue_requests quiet \
        rack_url_scheme rackup raise_exception_on_sigterm restart_command set_default_host set_remote_address shutdown_debug \
        silence_fork_callback_warning silence_single_worker_warning single ssl_bind state_path state_permission \
        stdout_redirect supported_http_methods tag threads wait_for_less_busy_worker worker_boot_timeout \
        worker_check_interval worker_culling_strategy worker_shutdown_timeout worker_timeout workers";

    #[test]
    fn every_method_of_puma_has_a_row_and_only_one() {
        let theirs: BTreeSet<&str> = PUMA.split_whitespace().collect();
        let ours: Vec<&str> = METHODS.iter().flat_map(Method::names).collect();
        assert_eq!(ours.iter().copied().collect::<BTreeSet<_>>(), theirs);
        assert_eq!(ours.len(), theirs.len(), "a name is there twice");
    }

    #[test]
    fn texts_are_one_sentence() {
        for method in METHODS {
            assert!(!method.text.ends_with('.') && !method.text.contains(['|', '\n']), "{}", method.name);
        }
    }

    #[test]
    fn slips_find_their_method() {
        assert_eq!(nearest_method("worker"), Some("workers"));
        assert_eq!(nearest_method("preload_app"), Some("preload_app!"));
        assert!(nearest_method("on_worker_start").is_some());
        assert_eq!(nearest_method("xyzzy"), None);
    }
}
