//! The hub of live pages: WebSockets of Action Cable that the server itself holds.

use std::path::PathBuf;
use std::time::Duration;

use super::entry::{Category, bare, long};
use super::section::section;
use crate::kind::Completion;
use crate::kind::lists::{Origins, StreamNames};
use crate::kind::numbers::{Count, Period, Size};
use crate::kind::texts::{Path, RedisUrl, RequestPath, Switch, TicketSecret, Word};
use crate::kind::wrappers::{Maybe, OrOff};

section! { Category::Hub;
    /// The hub of live pages (docs/live-pages.md).
    Hub:

    /// Path of the WebSockets of Action Cable that the server holds
    path: Option<String> = OrOff(RequestPath), {
        key: "hub.path",
        flags: &[long("hub-path", "PATH")],
        default: "off",
        more: "The app's mount path, usually /cable. The app then gets a request for each connection, subscription, action and end \
               instead of the WebSocket. docs/live-pages.md describes it.",
        known_as: &["cable", "cable_path", "mount_path"],
    }
    /// Secret of signed stream names, so that they need no Ruby
    secret: Option<String> = Maybe(TicketSecret), {
        key: "hub.secret",
        flags: &[long("hub-secret", "SECRET")],
        env: &["FIREBRICK_HUB_SECRET"],
        default_shown: Some("none: the app checks the names"),
        more: "The same as Turbo.signed_stream_verifier_key in the app. Events and polls need it.",
        secret: true,
        known_as: &["anycable_secret", "turbo_streams_secret"],
    }
    /// Streams to which every page may listen without a signature
    public_streams: Vec<String> = StreamNames, {
        key: "hub.public_streams",
        flags: &[long("hub-public-streams", "NAMES")],
        default: "",
        default_shown: Some("none: names are signed, or the app checks them"),
        more: "Such as news, or chat/* for all that begin with chat/. For AnyCable's channel $pubsub, events and polls.",
    }
    /// Other origins whose pages may listen to events and poll
    origins: Vec<String> = Origins, {
        key: "hub.origins",
        flags: &[long("hub-origins", "ORIGINS")],
        default: "",
        default_shown: Some("none: only the server's own pages"),
        more: "Such as https://shop.example, or * for all. WebSockets have config.action_cable.allowed_request_origins.",
        known_as: &["allowed_origins", "cors_allowed_origins", "cors_origins"],
    }
    /// Path of the Mercure hub
    mercure: Option<String> = OrOff(RequestPath), {
        key: "hub.mercure",
        flags: &[long("hub-mercure", "PATH")],
        default: "off",
        more: "Usually /.well-known/mercure. Needs hub.path, and hub.mercure_secret or hub.secret.",
        known_as: &["mercure_path", "mercure_url"],
    }
    /// Secret of the tokens (JWT, HS256) of Mercure's clients
    mercure_secret: Option<String> = Maybe(TicketSecret), {
        key: "hub.mercure_secret",
        flags: &[long("hub-mercure-secret", "SECRET")],
        env: &["FIREBRICK_MERCURE_SECRET"],
        default_shown: Some("hub.secret"),
        secret: true,
        known_as: &["mercure_jwt_key", "mercure_publisher_jwt_key", "mercure_subscriber_jwt_key", "mercure_jwt_secret"],
    }
    /// Subscribers of Mercure need no token, and get public updates
    mercure_anonymous: bool = Switch, {
        key: "hub.mercure_anonymous",
        flags: &[bare("hub-mercure-anonymous", "true")],
        default: "false",
        known_as: &["anonymous"],
    }
    /// Path of the RPC over HTTP of AnyCable's gem in the app
    rpc: Option<String> = OrOff(RequestPath), {
        key: "hub.rpc",
        flags: &[long("hub-rpc", "PATH")],
        default: "off",
        more: "Usually /_anycable, http_rpc_mount_path of the gem. Then the gem runs the app's channels. Needs hub.path, and hub.rpc_secret or \
               hub.secret. docs/from-anycable.md describes it.",
        known_as: &["rpc_host", "http_rpc_mount_path", "http_rpc"],
    }
    /// Token of calls to AnyCable's gem
    rpc_secret: Option<String> = Maybe(TicketSecret), {
        key: "hub.rpc_secret",
        flags: &[long("hub-rpc-secret", "SECRET")],
        env: &["ANYCABLE_HTTP_RPC_SECRET"],
        default_shown: Some("derived from hub.secret, as AnyCable does"),
        secret: true,
        known_as: &["http_rpc_secret"],
    }
    /// Secret of the tokens (JWT, HS256) of clients
    jwt_secret: Option<String> = Maybe(TicketSecret), {
        key: "hub.jwt_secret",
        flags: &[long("hub-jwt-secret", "SECRET")],
        env: &["FIREBRICK_JWT_SECRET", "ANYCABLE_JWT_SECRET"],
        default_shown: Some("hub.secret"),
        more: "By a token a client connects without a call to the app. It is in the parameter hub.jwt_param, in a field such as X-JID, or as the \
               WebSocket's protocol anycable-token.TOKEN.",
        secret: true,
        known_as: &["anycable_jwt_secret", "jwt_id_key"],
    }
    /// Parameter of the address in which clients show their token
    jwt_param: String = Word, {
        key: "hub.jwt_param",
        flags: &[long("hub-jwt-param", "NAME")],
        default: "jid",
        more: "The field has the same name behind `X-`.",
        known_as: &["jwt_id_param", "id_param"],
    }
    /// Clients without a token are not let in
    jwt_required: bool = Switch, {
        key: "hub.jwt_required",
        flags: &[bare("hub-jwt-required", "true")],
        default: "false",
        more: "Otherwise the app is asked about them.",
        known_as: &["enforce_jwt", "jwt_id_enforce"],
    }
    /// Path at which programs publish by HTTP in AnyCable's form
    broadcast: Option<String> = OrOff(RequestPath), {
        key: "hub.broadcast",
        flags: &[long("hub-broadcast", "PATH")],
        default: "off",
        more: "Usually /_broadcast. Needs hub.path, and hub.broadcast_secret or hub.secret. Programs of the app publish on hub.socket.",
        known_as: &["http_broadcast_url", "http_broadcast_path"],
    }
    /// Token of programs that publish by HTTP
    broadcast_secret: Option<String> = Maybe(TicketSecret), {
        key: "hub.broadcast_secret",
        flags: &[long("hub-broadcast-secret", "SECRET")],
        env: &["ANYCABLE_BROADCAST_KEY"],
        default_shown: Some("derived from hub.secret, as AnyCable does"),
        secret: true,
        known_as: &["broadcast_key", "http_broadcast_secret"],
    }
    /// How long a poll waits for a message
    poll: Duration = Period { min: Duration::from_secs(1), max: Duration::from_secs(3_600) }, {
        key: "hub.poll",
        flags: &[long("hub-poll", "TIME")],
        default: "25s",
        more: "Shorter than the time-out of proxies in front.",
    }
    /// Redis server through which several servers share streams
    redis: Option<String> = Maybe(RedisUrl), {
        key: "hub.redis",
        flags: &[long("hub-redis", "URL")],
        env: &["FIREBRICK_HUB_REDIS"],
        default_shown: Some("none: each server has its own"),
        more: "redis://HOST:PORT/DB, rediss:// or unix:///PATH. Servers with the same shared.group share streams; all need the same \
               hub.history and hub.history_memory. docs/live-pages.md describes how servers work while Redis is down.",
        secret: true,
        known_as: &["redis_url", "cable_redis"],
    }
    /// Maximum number of requests of the hub that the app has at a time
    calls: u32 = Count { min: 1, max: 10_000 }, {
        key: "hub.calls",
        flags: &[long("hub-calls", "NUMBER")],
        default: "8",
        more: "Further ones wait in the hub, so that clients that all connect at once leave seats for other requests.",
        known_as: &["rpc_concurrency"],
    }
    /// Unix socket on which processes of the app publish
    socket: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "hub.socket",
        flags: &[long("hub-socket", "PATH")],
        default_shown: Some("tmp/firebrick-hub.sock in the app's directory"),
        more: "Only the server's user can use it. Workers and services find it by FIREBRICK_HUB, other processes by its default path or \
               by `socket` in cable.yml.",
    }
    /// How long messages are kept for clients that connect again
    history: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(86_400) }, {
        key: "hub.history",
        flags: &[long("hub-history", "TIME")],
        default: "5m",
        known_as: &["history_ttl"],
    }
    /// Maximum number of kept messages of a stream
    history_messages: u32 = Count { min: 0, max: 1_000_000 }, {
        key: "hub.history_messages",
        flags: &[long("hub-history-messages", "NUMBER")],
        default: "1000",
        known_as: &["history_limit"],
    }
    /// Memory for the kept messages of all streams
    history_memory: u64 = Size { min: 0, max: 1 << 40 }, {
        key: "hub.history_memory",
        flags: &[long("hub-history-memory", "SIZE")],
        default: "64MiB",
    }
    /// How long a member of a stream whose connection broke stays
    presence_expiry: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(3_600) }, {
        key: "hub.presence_expiry",
        flags: &[long("hub-presence-expiry", "TIME")],
        default: "15s",
        more: "Others do not notice a client that joins again within this time.",
        known_as: &["presence_ttl"],
    }
    /// Maximum number of members of a stream
    presence_members: u32 = Count { min: 0, max: 100_000 }, {
        key: "hub.presence_members",
        flags: &[long("hub-presence-members", "NUMBER")],
        default: "1000",
        more: "Further ones are refused. With hub.redis, members of all servers count. 0: there is no presence.",
    }
    /// Memory for the members of all streams
    presence_memory: u64 = Size { min: 0, max: 1 << 40 }, {
        key: "hub.presence_memory",
        flags: &[long("hub-presence-memory", "SIZE")],
        default: "16MiB",
        more: "Beyond it further members are refused. With hub.redis, members of all servers count.",
    }
    /// Clients of channels may join as members by themselves, with any id
    presence_claims: bool = Switch, {
        key: "hub.presence_claims",
        flags: &[bare("hub-presence-claims", "true")],
        default: "false",
        more: "Without it the app says who a client is: by join_presence in the channel, or by a presence token.",
    }
    /// Clients of the channel $pubsub may whisper
    pubsub_whispers: bool = Switch, {
        key: "hub.pubsub_whispers",
        flags: &[bare("hub-pubsub-whispers", "true")],
        default: "false",
        more: "To the stream by whose name, signed or public, they have subscribed. Channels of the app say so by `whisper: true`.",
        known_as: &["streams_whisper"],
    }
    /// Maximum size of a message from a client
    max_message: u64 = Size { min: 1 << 10, max: 1 << 20 }, {
        key: "hub.max_message",
        flags: &[long("hub-max-message", "SIZE")],
        default: "64KiB",
        more: "A larger one closes the WebSocket with status 1009.",
        known_as: &["max_message_size"],
    }
    /// Maximum number of subscriptions of a client
    max_subscriptions: u32 = Count { min: 1, max: 10_000 }, {
        key: "hub.max_subscriptions",
        flags: &[long("hub-max-subscriptions", "NUMBER")],
        default: "100",
        more: "Further subscriptions are rejected.",
    }
    /// Maximum number of bytes that wait for a client that does not read
    client_queue: u64 = Size { min: 4 << 10, max: 1 << 30 }, {
        key: "hub.client_queue",
        flags: &[long("hub-client-queue", "SIZE")],
        default: "1MiB",
        more: "A client with more is closed with status 1008, and can resume when it connects again.",
    }
    /// Time over which WebSockets are closed when the server ends
    drain: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(3600) }, {
        key: "hub.drain",
        flags: &[long("hub-drain", "TIME")],
        default: "2s",
        more: "Clients connect again as soon as they are told to; spread over this time, they do not all come to another server at once. \
               At most half of timeouts.shutdown is used.",
        known_as: &["shutdown_disconnect_pool_size"],
    }
}
